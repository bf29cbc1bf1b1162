package ingress

import (
	"context"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// served is what the status of Ingresses is made of.
type served struct {
	// ports are the open ones by Ingress; none for those that were served and are not any more.
	ports map[key][]int32
}

// maxTold bounds the Ingresses that hear of a port that is taken.
const maxTold = 20

// openDoors opens the ports that the plan needs.
func (s *Server) openDoors(ctx context.Context) {
	before := [2]bool{s.plain.open(), s.tls.open()}
	for _, d := range []*door{s.plain, s.tls} {
		first, err := d.set(ctx, len(s.plan.ours) > 0 && (!d.secure || s.plan.secure))
		if !first {
			continue
		}
		s.Log.Warn("a port of Ingresses cannot be opened; it is tried again", "port", d.port, "err", err)
		for _, in := range s.plan.ours[:min(len(s.plan.ours), maxTold)] {
			if d == s.plain || len(in.Spec.TLS) > 0 {
				s.Complain(in, portTaken, "node "+s.NodeName+" cannot serve it: "+err.Error()+"; it is tried again")
			}
		}
	}
	if before != [2]bool{s.plain.open(), s.tls.open()} {
		s.serve(nil)
	}
}

// serve says which Ingresses are served at which ports; old are those that were until now.
func (s *Server) serve(old []*networkingv1.Ingress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[key][]int32{}
	for k, ports := range s.served.ports {
		if ports == nil {
			next[k] = nil
		}
	}
	for _, in := range old {
		next[keyOf(in)] = nil
	}
	for _, in := range s.plan.ours {
		ports := []int32{}
		if s.plain.open() {
			ports = append(ports, int32(s.HTTPPort))
		}
		if s.tls.open() && len(in.Spec.TLS) > 0 {
			ports = append(ports, int32(s.HTTPSPort))
		}
		next[keyOf(in)] = ports
	}
	s.served.ports = next
	signal(s.status)
}

// keepStatus writes the addresses of this node into the Ingresses that it serves.
func (s *Server) keepStatus(ctx context.Context) {
	pause := firstPause
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.status:
		case <-retry:
		}
		retry = nil
		if s.publish(ctx) {
			pause = firstPause
			continue
		}
		retry = time.After(pause)
		pause = min(2*pause, longestPause)
	}
}

// publish writes the statuses that are not as they should be. It says whether they are now.
func (s *Server) publish(ctx context.Context) bool {
	s.mu.Lock()
	ports := s.served.ports
	s.mu.Unlock()
	if len(ports) == 0 {
		return true
	}
	var nodes []*corev1.Node
	for o := range s.Nodes.List("") {
		if n, ok := o.(*corev1.Node); ok {
			nodes = append(nodes, n)
		}
	}
	well := true
	for k, open := range ports {
		in := find[*networkingv1.Ingress](s.Ingresses, k)
		if in == nil {
			s.forget(k)
			continue
		}
		want := statusOf(in.Status.LoadBalancer.Ingress, surroundings{nodes, s.NodeName, s.Ranges}, open)
		if same(want, in.Status.LoadBalancer.Ingress) {
			if open == nil {
				s.forget(k)
			}
			continue
		}
		next := in.DeepCopy()
		next.Status.LoadBalancer.Ingress = want
		if _, err := s.Writer.Update(ctx, Ingresses(), next, "status"); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			well = false
			if !apierrors.IsConflict(err) {
				s.Log.Warn("the status of an Ingress cannot be written; it is tried again", "ingress", k.String(), "err", err)
			}
		}
	}
	return well
}

// forget drops an Ingress that was served once.
func (s *Server) forget(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ports, ok := s.served.ports[k]; ok && ports == nil {
		next := map[key][]int32{}
		for other, p := range s.served.ports {
			if other != k {
				next[other] = p
			}
		}
		s.served.ports = next
	}
}

func same(a, b []networkingv1.IngressLoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y networkingv1.IngressLoadBalancerIngress) bool { return reflect.DeepEqual(x, y) })
}

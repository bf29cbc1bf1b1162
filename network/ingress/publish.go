package ingress

import (
	"context"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/network/proxysync"
)

// maxPortEvents bounds the Ingresses that get an Event when a port is in use.
const maxPortEvents = 20

// openPortsOfPlan opens the ports that the plan needs, and closes the others.
func (s *Server) openPortsOfPlan(ctx context.Context) {
	before := [2]bool{s.http.isOpen(), s.https.isOpen()}
	for _, p := range []*portServer{s.http, s.https} {
		first, err := p.set(ctx, len(s.plan.served) > 0 && (!p.secure || s.plan.needsTLS))
		if !first {
			continue
		}
		s.Log.Warn("a port of Ingresses cannot be opened; it is tried again", "port", p.port, "err", err)
		for _, in := range s.plan.served[:min(len(s.plan.served), maxPortEvents)] {
			if p == s.http || len(in.Spec.TLS) > 0 {
				s.RecordEvent(in, portTaken, "node "+s.NodeName+" cannot serve it: "+err.Error()+"; it is tried again")
			}
		}
	}
	if before != [2]bool{s.http.isOpen(), s.https.isOpen()} {
		s.setOpenPorts(nil)
	}
}

// setOpenPorts records at which ports each Ingress is served, for its status. Those in old were served until now.
func (s *Server) setOpenPorts(old []*networkingv1.Ingress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[key][]int32{}
	for k, ports := range s.openPorts {
		if ports == nil {
			next[k] = nil
		}
	}
	for _, in := range old {
		next[proxysync.KeyOf(in)] = nil
	}
	for _, in := range s.plan.served {
		ports := []int32{}
		if s.http.isOpen() {
			ports = append(ports, int32(s.HTTPPort))
		}
		if s.https.isOpen() && len(in.Spec.TLS) > 0 {
			ports = append(ports, int32(s.HTTPSPort))
		}
		next[proxysync.KeyOf(in)] = ports
	}
	s.openPorts = next
	s.statusChanged.Send()
}

// publish writes the addresses of this node into the statuses of the Ingresses that it serves. It returns false if one
// could not be written.
func (s *Server) publish(ctx context.Context) bool {
	s.mu.Lock()
	openPorts := s.openPorts
	s.mu.Unlock()
	if len(openPorts) == 0 {
		return true
	}
	var nodes []*corev1.Node
	for o := range s.Nodes.List("") {
		if n, ok := o.(*corev1.Node); ok {
			nodes = append(nodes, n)
		}
	}
	complete := true
	for k, ports := range openPorts {
		in := proxysync.Find[*networkingv1.Ingress](s.Ingresses, k)
		if in == nil {
			s.forget(k)
			continue
		}
		want := statusOf(in.Status.LoadBalancer.Ingress, nodeAddresses{nodes, s.NodeName, s.Ranges}, ports)
		if isSameStatus(want, in.Status.LoadBalancer.Ingress) {
			if ports == nil {
				s.forget(k)
			}
			continue
		}
		next := in.DeepCopy()
		next.Status.LoadBalancer.Ingress = want
		if _, err := s.Writer.Update(ctx, Ingresses(), next, "status"); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			complete = false
			if !apierrors.IsConflict(err) {
				s.Log.Warn("the status of an Ingress cannot be written; it is tried again", "ingress", k.String(), "err", err)
			}
		}
	}
	return complete
}

// forget removes an Ingress that is not served any more, once its status says so.
func (s *Server) forget(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ports, ok := s.openPorts[k]; ok && ports == nil {
		next := maps.Clone(s.openPorts) // publish may be reading the old map
		delete(next, k)
		s.openPorts = next
	}
}

func isSameStatus(a, b []networkingv1.IngressLoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y networkingv1.IngressLoadBalancerIngress) bool { return reflect.DeepEqual(x, y) })
}

package extensionclient

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Objects reads the objects of the cluster.
type Objects interface {
	Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error)
	List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error)
}

// Resolver returns a function that finds the addresses behind Services: those of their ready endpoints, in random
// order, or the name of a Service of type ExternalName.
func Resolver(objects Objects) func(ctx context.Context, s Service) ([]Address, error) {
	return func(ctx context.Context, s Service) ([]Address, error) {
		o, err := objects.Get(ctx, schema.GroupResource{Resource: "services"}, s.Namespace, s.Name)
		if err != nil {
			return nil, err
		}
		svc, ok := o.(*corev1.Service)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T", o)
		}
		if svc.Spec.Type == corev1.ServiceTypeExternalName {
			return []Address{{Host: net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(s.Port)))}}, nil
		}
		at := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == s.Port })
		if at < 0 {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", s.Port, s.Name))
		}
		all, err := objects.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices").GroupResource(), s.Namespace)
		if all == nil {
			return nil, apierrors.NewInternalError(err)
		}
		var behind []*discoveryv1.EndpointSlice
		for o := range all {
			if slice, ok := o.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == s.Name {
				behind = append(behind, slice)
			}
		}
		found := readyEndpoints(behind, svc.Spec.Ports[at].Name)
		if len(found) == 0 {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", s.Name))
		}
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		found = found[:min(len(found), maxDials)]
		out := make([]Address, len(found))
		for i, e := range found {
			out[i] = Address{Host: e.host, Node: nodeOf(ctx, objects, s.Namespace, e)}
		}
		return out, nil
	}
}

// endpoint is one ready endpoint of a port.
type endpoint struct {
	host    string // with the port
	address string
	target  *corev1.ObjectReference
}

// readyEndpoints returns the ready endpoints of a port. Only global unicast addresses count, so that nobody makes the
// server connect to itself.
func readyEndpoints(behind []*discoveryv1.EndpointSlice, port string) (out []endpoint) {
	for _, s := range behind {
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil {
				continue
			}
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
					continue
				}
				if a, err := netip.ParseAddr(e.Addresses[0]); err != nil || !a.IsGlobalUnicast() {
					continue
				}
				out = append(out, endpoint{net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))), e.Addresses[0], e.TargetRef})
			}
		}
	}
	return out
}

// nodeOf returns the node of the Pod that an endpoint names and whose address it has; empty for another address, which
// is dialed directly.
func nodeOf(ctx context.Context, objects Objects, namespace string, e endpoint) string {
	if e.target == nil || e.target.Kind != "Pod" {
		return ""
	}
	o, err := objects.Get(ctx, schema.GroupResource{Resource: "pods"}, namespace, e.target.Name)
	if err != nil {
		return ""
	}
	p, ok := o.(*corev1.Pod)
	if !ok || !slices.ContainsFunc(p.Status.PodIPs, func(i corev1.PodIP) bool { return i.IP == e.address }) {
		return ""
	}
	return p.Spec.NodeName
}

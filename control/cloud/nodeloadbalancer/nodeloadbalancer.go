// Package nodeloadbalancer is the provider of load balancers for clusters without a cloud: it gives Services of type
// LoadBalancer the addresses of the cluster's own nodes, whose service proxies forward the Service's ports to its endpoints.
// Each port of the nodes can be given to one Service only; the oldest Service gets it, the others stay pending and have an
// Event with the reason.
package nodeloadbalancer

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/control"
	"proa.dev/control/cloud"
	"proa.dev/control/lib/servicebackends"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// Name is the name of the provider.
	Name = gr.LoadBalancerNodes
	// Class is the loadBalancerClass by which Services can ask for this provider. Services without a class get it too.
	Class = "proa.dev/nodes"
	// ingressController is the spec.controller of IngressClasses whose Ingresses are served on ports of nodes.
	ingressController = "proa.dev/ingress"
)

// Port is a reserved port of the nodes, which no Service can have.
type Port struct {
	Protocol corev1.Protocol
	Number   int32
	Owner    string // as in "port 22/TCP of the nodes belongs to SSH"
}

// Provider returns the provider. kept are the reserved ports of the nodes; ranges are the networks of Pods and Services: an
// address in one of them is ignored, even if a Node claims it.
func Provider(kept []Port, ranges []netip.Prefix) cloud.Provider {
	return cloud.Provider{Name: Name, Class: Class, Balancer: &balancer{reserved: kept, ranges: ranges}}
}

type balancer struct {
	reserved []Port
	ranges   []netip.Prefix
	events   cloud.EventFilter
}

// Remove forgets which Events were recorded. There is nothing else to delete: the service proxies follow the status of the
// Service, which the caller clears.
func (b *balancer) Remove(_ context.Context, svc *corev1.Service) error {
	b.events.IsNew(skipped+name(svc), "")
	b.events.IsNew(displaced+name(svc), "")
	return nil
}

func name(o kind.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// The subjects of Events, as prefixes of the keys in balancer.events.
const (
	skipped   = "skipped "
	displaced = "displaced "
)

// Ensure returns the addresses of nodes that a Service gets.
func (b *balancer) Ensure(_ context.Context, c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus,
	error) {
	out := b.collect(c, svc, nodes).decide()
	b.recordEvents(c, svc, out)
	if out.pending != "" {
		return corev1.LoadBalancerStatus{}, &cloud.Pending{Why: out.pending}
	}
	return out.status, nil
}

// collect collects the objects that a decision depends on.
func (b *balancer) collect(c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) *world {
	s := &world{service: svc, nodes: nodes, reserved: b.reserved, ranges: b.ranges, ingresses: servedIngresses(c)}
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		s.claimants = append(s.claimants, n)
	}
	for o := range control.By[*corev1.Service](c, gr.Services, byBalanced(), wantsAddress) {
		s.others = append(s.others, o)
		for _, key := range ports(o) {
			for holder := range control.By[*corev1.Service](c, gr.Services, byNodePort(), key) {
				s.nodePorts = append(s.nodePorts, holder)
			}
		}
	}
	for o := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, servicebackends.ByService(), name(svc)) {
		s.slices = append(s.slices, o)
	}
	for _, key := range ports(svc) {
		for o := range control.By[*corev1.Pod](c, gr.Pods, byHostPort(), key) {
			s.pods = append(s.pods, o)
		}
	}
	return s
}

// recordEvents records Events about nodes that were left out and Ingresses that lose a port, once for each change.
func (b *balancer) recordEvents(c *control.Cluster, svc *corev1.Service, out outcome) {
	var losers []string
	for _, o := range out.displaced {
		losers = append(losers, string(o.UID))
	}
	if b.events.IsNew(displaced+name(svc), strings.Join(losers, " ")) {
		for _, o := range out.displaced {
			c.Event(o, corev1.EventTypeWarning, "PortTaken", "Ports of the nodes are used by the load balancer of Service %s, which is older", name(svc))
		}
	}
	if b.events.IsNew(skipped+name(svc), out.skipped) {
		c.Event(svc, corev1.EventTypeWarning, "LoadBalancerNodeSkipped", "Some nodes are left out: %s", out.skipped)
	}
}

// servedIngresses returns the Ingresses that are served on ports of nodes: those of the built-in ingress controller's classes that
// have an address.
func servedIngresses(c *control.Cluster) (out []*networkingv1.Ingress) {
	var classes []string
	for o := range control.List[*networkingv1.IngressClass](c, ingressClasses(), "") {
		if o.Spec.Controller == ingressController {
			classes = append(classes, o.Name)
		}
	}
	if len(classes) == 0 {
		return nil
	}
	for o := range control.List[*networkingv1.Ingress](c, ingresses(), "") {
		class := o.Annotations["kubernetes.io/ingress.class"]
		if o.Spec.IngressClassName != nil {
			class = *o.Spec.IngressClassName
		}
		if len(o.Status.LoadBalancer.Ingress) > 0 && slices.Contains(classes, class) {
			out = append(out, o)
		}
	}
	return out
}

// Package balancer gives Services of type LoadBalancer the addresses of the cluster's own nodes, where no cloud has load
// balancers to give: the service proxy of each node leads the Service's ports there to its endpoints. A port of the nodes can
// be had once, so Services compete for it; the oldest wins, the others stay pending and say why.
package balancer

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	// Name is that of the provider.
	Name = gr.LoadBalancerNodes
	// Class is the loadBalancerClass by which Services can ask for it. Services without a class get it too.
	Class = "proa.dev/nodes"
	// ingressController is the controller of IngressClasses whose Ingresses are served on ports of nodes.
	ingressController = "proa.dev/ingress"
)

// Port is one that a Service cannot have, and whose it is.
type Port struct {
	Protocol corev1.Protocol
	Number   int32
	Owner    string // as in "port 22/TCP of the nodes belongs to SSH"
}

// Provider returns the provider. kept are the ports of nodes that the system itself needs, ranges the networks of Pods and
// Services, where no node has an address, whatever it says.
func Provider(kept []Port, ranges []netip.Prefix) cloud.Provider {
	return cloud.Provider{Name: Name, Class: Class, Balancer: &balancer{kept: kept, ranges: ranges}}
}

type balancer struct {
	kept   []Port
	ranges []netip.Prefix
	told   cloud.Once
}

// Remove has nothing to do but to forget: what there is, is in the status of the Service.
func (b *balancer) Remove(_ context.Context, svc *corev1.Service) error {
	b.told.New(skipped+name(svc), "")
	b.told.New(displaced+name(svc), "")
	return nil
}

func name(o kind.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// What people are told about.
const (
	skipped   = "skipped "
	displaced = "displaced "
)

// Ensure says at which addresses a Service is.
func (b *balancer) Ensure(_ context.Context, c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error) {
	out := b.look(c, svc, nodes).decide()
	b.tell(c, svc, out)
	if out.pending != "" {
		return corev1.LoadBalancerStatus{}, &cloud.Pending{Why: out.pending}
	}
	return out.status, nil
}

// look collects what a decision depends on.
func (b *balancer) look(c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) *scene {
	s := &scene{service: svc, nodes: nodes, kept: b.kept, ranges: b.ranges, ingresses: served(c)}
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		s.claimants = append(s.claimants, n)
	}
	for o := range control.By[*corev1.Service](c, gr.Services, byBalanced(), yes) {
		s.others = append(s.others, o)
		for _, key := range ports(o) {
			for holder := range control.By[*corev1.Service](c, gr.Services, byNodePort(), key) {
				s.nodePorts = append(s.nodePorts, holder)
			}
		}
	}
	for o := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, byService(), name(svc)) {
		s.slices = append(s.slices, o)
	}
	for _, key := range ports(svc) {
		for o := range control.By[*corev1.Pod](c, gr.Pods, byHostPort(), key) {
			s.pods = append(s.pods, o)
		}
	}
	return s
}

// tell says what is not as people may think, once.
func (b *balancer) tell(c *control.Cluster, svc *corev1.Service, out outcome) {
	var losers []string
	for _, o := range out.displaced {
		losers = append(losers, string(o.UID))
	}
	if b.told.New(displaced+name(svc), strings.Join(losers, " ")) {
		for _, o := range out.displaced {
			c.Event(o, corev1.EventTypeWarning, "PortTaken", "Ports of the nodes are used by the load balancer of Service %s, which is older", name(svc))
		}
	}
	if b.told.New(skipped+name(svc), out.skipped) {
		c.Event(svc, corev1.EventTypeWarning, "LoadBalancerNodeSkipped", "Some nodes are left out: %s", out.skipped)
	}
}

// served are the Ingresses that are served on ports of nodes: those of classes of our controller, once they have an address.
func served(c *control.Cluster) (out []*networkingv1.Ingress) {
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

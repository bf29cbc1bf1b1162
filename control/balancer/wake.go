package balancer

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/cloud"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

func ingresses() schema.GroupResource {
	return schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
}

func ingressClasses() schema.GroupResource {
	return schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}
}

// Triggers are what can free a port or take it, and what makes a node fit.
func (*balancer) Triggers() []control.Trigger {
	return []control.Trigger{
		{On: gr.Nodes, Keys: everyone, When: nodeChanged},
		{On: gr.EndpointSlices, Keys: ownerOf},
		{On: gr.Services, Keys: rivals, When: serviceChanged},
		{On: gr.Pods, Keys: wanting, When: podChanged},
		{On: ingresses(), Keys: everyone},
		{On: ingressClasses(), Keys: everyone},
	}
}

// yes is the value of Services in the index.
const yes = "yes"

// byBalanced finds the Services that want an address of nodes.
func byBalanced() client.Index {
	return client.Index{Name: "balancedByNodes", Of: func(o kind.Object) []string {
		if svc, ok := o.(*corev1.Service); ok && wants(svc) {
			return []string{yes}
		}
		return nil
	}}
}

func wants(svc *corev1.Service) bool { return cloud.Provider{Name: Name, Class: Class}.Wants(svc) }

// byPort finds the Services that want a port of nodes.
func byPort() client.Index {
	return client.Index{Name: "balancedPort", Of: func(o kind.Object) (out []string) {
		if svc, ok := o.(*corev1.Service); ok && wants(svc) {
			return ports(svc)
		}
		return nil
	}}
}

func ports(svc *corev1.Service) (out []string) {
	for _, p := range svc.Spec.Ports {
		out = append(out, portKey(p.Protocol, p.Port))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// byNodePort finds Services by the ports that they have on every node.
func byNodePort() client.Index {
	return client.Index{Name: "nodePort", Of: func(o kind.Object) []string {
		svc, ok := o.(*corev1.Service)
		if !ok {
			return nil
		}
		out := nodePorts(svc)
		slices.Sort(out)
		return slices.Compact(out)
	}}
}

// byHostPort finds Pods by the ports that they have on their node.
func byHostPort() client.Index {
	return client.Index{Name: "hostPort", Of: func(o kind.Object) (out []string) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return nil
		}
		for _, h := range hostPorts(p) {
			out = append(out, h.key)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}}
}

// byService finds the EndpointSlices of a Service.
func byService() client.Index {
	return client.Index{Name: "service", Of: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// everyone is every Service that wants an address.
func everyone(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return keys(c, byBalanced(), yes)
}

func keys(c *control.Cluster, index client.Index, values ...string) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for _, v := range values {
			for o := range c.View(gr.Services).By(index, v) {
				if !yield(control.KeyOf(o)) {
					return
				}
			}
		}
	}
}

// ownerOf is the Service of an EndpointSlice, if it matters to it where its endpoints are.
func ownerOf(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		svc, ok := control.Get[*corev1.Service](c, gr.Services, o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName])
		if ok && wants(svc) && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			yield(control.KeyOf(svc))
		}
	}
}

// rivals are the Services that want a port which another has, or had.
func rivals(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return func(func(control.Key) bool) {}
	}
	return keys(c, byPort(), append(ports(svc), nodePorts(svc)...)...)
}

// wanting are the Services that want a port which a Pod has.
func wanting(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return func(func(control.Key) bool) {}
	}
	var list []string
	for _, h := range hostPorts(p) {
		list = append(list, h.key)
	}
	return keys(c, byPort(), list...)
}

func nodeChanged(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	return a != nil && b != nil && (ready(a) != ready(b) || !slices.Equal(a.Status.Addresses, b.Status.Addresses))
}

// serviceChanged says that ports may have become free, or taken.
func serviceChanged(old, now kind.Object) bool {
	a, _ := old.(*corev1.Service)
	b, _ := now.(*corev1.Service)
	if a == nil || b == nil {
		return true
	}
	return !apiequality.Semantic.DeepEqual(a.Spec, b.Spec) || wants(a) != wants(b) ||
		(len(a.Status.LoadBalancer.Ingress) == 0) != (len(b.Status.LoadBalancer.Ingress) == 0)
}

// podChanged says that a Pod has got or lost a port of its node.
func podChanged(old, now kind.Object) bool {
	a, _ := old.(*corev1.Pod)
	b, _ := now.(*corev1.Pod)
	if a == nil || b == nil {
		return true
	}
	return a.Spec.NodeName != b.Spec.NodeName || finished(a) != finished(b)
}

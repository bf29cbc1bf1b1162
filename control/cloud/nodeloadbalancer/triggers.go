package nodeloadbalancer

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
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

func ingresses() schema.GroupResource {
	return schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
}

func ingressClasses() schema.GroupResource {
	return schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}
}

// Triggers returns triggers on everything that can take or free a port of a node, or make a node usable.
func (*balancer) Triggers() []control.Trigger {
	return []control.Trigger{
		{On: gr.Nodes, Keys: allBalanced, When: nodeChanged},
		{On: gr.EndpointSlices, Keys: serviceOfSlice},
		{On: gr.Services, Keys: servicesWithSamePort, When: serviceChanged},
		{On: gr.Pods, Keys: servicesWithHostPort, When: podChanged},
		{On: ingresses(), Keys: allBalanced},
		{On: ingressClasses(), Keys: allBalanced},
	}
}

// wantsAddress is the value of all Services in the index byBalanced.
const wantsAddress = "yes"

// byBalanced indexes the Services that want an address of nodes, all under one value.
func byBalanced() client.Index {
	return client.Index{Name: "balancedByNodes", Values: func(o kind.Object) []string {
		if svc, ok := o.(*corev1.Service); ok && wants(svc) {
			return []string{wantsAddress}
		}
		return nil
	}}
}

func wants(svc *corev1.Service) bool { return cloud.Provider{Name: Name, Class: Class}.Wants(svc) }

// byPort indexes the Services that want an address of nodes by their ports.
func byPort() client.Index {
	return client.Index{Name: "balancedPort", Values: func(o kind.Object) (out []string) {
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

// byNodePort indexes Services by their node ports.
func byNodePort() client.Index {
	return client.Index{Name: "nodePort", Values: func(o kind.Object) []string {
		svc, ok := o.(*corev1.Service)
		if !ok {
			return nil
		}
		out := nodePorts(svc)
		slices.Sort(out)
		return slices.Compact(out)
	}}
}

// byHostPort indexes Pods by their host ports.
func byHostPort() client.Index {
	return client.Index{Name: "hostPort", Values: func(o kind.Object) (out []string) {
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

// allBalanced yields all Services that want an address of nodes.
func allBalanced(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return keys(c, byBalanced(), wantsAddress)
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

// serviceOfSlice yields the Service of an EndpointSlice, if its external traffic stays on nodes that have endpoints.
func serviceOfSlice(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		svc, ok := control.Get[*corev1.Service](c, gr.Services, o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName])
		if ok && wants(svc) && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			yield(control.KeyOf(svc))
		}
	}
}

// servicesWithSamePort yields the Services that want a port which the changed Service has, or had.
func servicesWithSamePort(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return func(func(control.Key) bool) {}
	}
	return keys(c, byPort(), append(ports(svc), nodePorts(svc)...)...)
}

// servicesWithHostPort yields the Services that want a host port of the changed Pod.
func servicesWithHostPort(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
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
	return a != nil && b != nil && (isReady(a) != isReady(b) || !slices.Equal(a.Status.Addresses, b.Status.Addresses))
}

// serviceChanged reports whether ports may have been freed or taken.
func serviceChanged(old, now kind.Object) bool {
	a, _ := old.(*corev1.Service)
	b, _ := now.(*corev1.Service)
	if a == nil || b == nil {
		return true
	}
	return !apiequality.Semantic.DeepEqual(a.Spec, b.Spec) || wants(a) != wants(b) ||
		(len(a.Status.LoadBalancer.Ingress) == 0) != (len(b.Status.LoadBalancer.Ingress) == 0)
}

// podChanged reports whether a Pod may have got or lost host ports on a node.
func podChanged(old, now kind.Object) bool {
	a, _ := old.(*corev1.Pod)
	b, _ := now.(*corev1.Pod)
	if a == nil || b == nil {
		return true
	}
	return a.Spec.NodeName != b.Spec.NodeName || workload.IsTerminal(a) != workload.IsTerminal(b)
}

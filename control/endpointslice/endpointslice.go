// Package endpointslice publishes the pods behind each Service as EndpointSlices, from which the network and DNS take where
// traffic goes. Nothing is delayed to be done together with something else: what happens while a Service is worked on is
// taken together by the queue anyway.
package endpointslice

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/backend"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Manager is the label value of the slices that this loop owns.
const Manager = "endpointslice-controller.k8s.io"

// most is how many endpoints a slice may have.
const most = 100

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "endpointslice-controller", Component: "endpoint-slice-controller", For: gr.Services, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: backend.Services, When: backend.Moved},
			{On: gr.EndpointSlices, Keys: service, When: ours},
			{On: gr.Nodes, Keys: onNode, When: nodeMoved},
			{On: gr.Nodes, Keys: byZones, When: zonesMoved},
		},
		Writes:    []control.Write{{On: gr.EndpointSlices, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// service is the key of the Service that a slice belongs to.
func service(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			yield(control.Key{Namespace: o.GetNamespace(), Name: name})
		}
	}
}

// ours says that a slice is or was one of this loop's.
func ours(old, now kind.Object) bool {
	return (old != nil && managed(old)) || (now != nil && managed(now))
}

func managed(o kind.Object) bool { return o.GetLabels()[discoveryv1.LabelManagedBy] == Manager }

// onNode are the Services of the pods on a node: their endpoints name its zone, and are left out when it is not known.
func onNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), o.GetName()) {
			for k := range backend.Services(c, p) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func nodeMoved(old, now kind.Object) bool {
	return old == nil || now == nil || zoneOf(old) != zoneOf(now)
}

// byZone finds the Services whose endpoints are shared out among the zones of the nodes.
func byZone() client.Index {
	return client.Index{Name: "zones", Of: func(o kind.Object) []string {
		if s, ok := o.(*corev1.Service); ok && wantsZones(s) {
			return []string{"auto"}
		}
		return nil
	}}
}

func byZones(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for s := range control.By[*corev1.Service](c, gr.Services, byZone(), "auto") {
			if !yield(control.KeyOf(s)) {
				return
			}
		}
	}
}

// zonesMoved says that the share of a zone may have changed.
func zonesMoved(old, now kind.Object) bool {
	was, ok := old.(*corev1.Node)
	node, is := now.(*corev1.Node)
	if !ok || !is {
		return true
	}
	return ready(was) != ready(node) || zoneOf(was) != zoneOf(node) || excluded(was) != excluded(node) ||
		was.Status.Allocatable.Cpu().Cmp(*node.Status.Allocatable.Cpu()) != 0
}

func zoneOf(o kind.Object) string { return o.GetLabels()[corev1.LabelTopologyZone] }

// Package endpointslice publishes the pods of each Service as EndpointSlices, from which service proxies and DNS learn where
// traffic goes. It does not delay writes to batch changes: the work queue merges those that happen during a reconcile.
package endpointslice

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/servicebackends"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Manager is the value of the label managed-by of the slices of this controller.
const Manager = "endpointslice-controller.k8s.io"

// maxEndpoints bounds the endpoints of a slice.
const maxEndpoints = 100

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "endpointslice-controller", Component: "endpoint-slice-controller", For: gr.Services, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: servicebackends.Services, When: servicebackends.ChangesEndpoint},
			{On: gr.EndpointSlices, Keys: serviceOfSlice, When: isOwnChange},
			{On: gr.Nodes, Keys: servicesOnNode, When: isRelevantNodeChange},
			{On: gr.Nodes, Keys: servicesByZone, When: changesZoneShares},
		},
		Writes:    []control.Write{{On: gr.EndpointSlices, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// serviceOfSlice yields the key of the Service that a slice belongs to.
func serviceOfSlice(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			yield(control.Key{Namespace: o.GetNamespace(), Name: name})
		}
	}
}

// isOwnChange reports whether a slice is or was managed by this controller.
func isOwnChange(old, now kind.Object) bool {
	return (old != nil && isManaged(old)) || (now != nil && isManaged(now))
}

func isManaged(o kind.Object) bool { return o.GetLabels()[discoveryv1.LabelManagedBy] == Manager }

// servicesOnNode yields the Services of the pods on a node: their endpoints contain its zone, and are left out when the node does not
// exist.
func servicesOnNode(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), o.GetName()) {
			for k := range servicebackends.Services(c, p) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func isRelevantNodeChange(old, now kind.Object) bool {
	return old == nil || now == nil || zoneOf(old) != zoneOf(now)
}

// byZone indexes the Services with topology-aware hints, all under one value.
func byZone() client.Index {
	return client.Index{Name: "zones", Values: func(o kind.Object) []string {
		if s, ok := o.(*corev1.Service); ok && wantsZones(s) {
			return []string{"auto"}
		}
		return nil
	}}
}

func servicesByZone(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for s := range control.By[*corev1.Service](c, gr.Services, byZone(), "auto") {
			if !yield(control.KeyOf(s)) {
				return
			}
		}
	}
}

// changesZoneShares reports whether a change of a node may change the shares of zones.
func changesZoneShares(old, now kind.Object) bool {
	was, ok := old.(*corev1.Node)
	node, is := now.(*corev1.Node)
	if !ok || !is {
		return true
	}
	return isReady(was) != isReady(node) || zoneOf(was) != zoneOf(node) || isControlPlane(was) != isControlPlane(node) ||
		was.Status.Allocatable.Cpu().Cmp(*node.Status.Allocatable.Cpu()) != 0
}

func zoneOf(o kind.Object) string { return o.GetLabels()[corev1.LabelTopologyZone] }

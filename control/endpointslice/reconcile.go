package endpointslice

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/control/lib/servicebackends"
	"proa.dev/kinds/lib/gr"
)

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	s, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	if !found || !servicebackends.HasSelector(s) { // the slices of a deleted Service are garbage collected
		return 0, nil
	}
	p := decide(state{
		service: s, pods: servicebackends.Pods(c, s), slices: owned(c, k),
		nodeNamed: func(name string) *corev1.Node {
			n, _ := control.Get[*corev1.Node](c, gr.Nodes, "", name)
			return n
		},
		allNodes: func() []*corev1.Node { return slices.Collect(control.List[*corev1.Node](c, gr.Nodes, "")) },
	})
	err := servicebackends.Apply(ctx, c, p.create, p.update, p.remove)
	if err != nil && !apierrors.IsConflict(err) {
		c.Event(s, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices for Service %s/%s: %v",
			s.Namespace, s.Name, err)
	}
	if err == nil {
		for _, e := range p.events {
			c.Event(s, e.kind, e.reason, "%s", e.message)
		}
	}
	return 0, err
}

// owned returns the slices of a Service that this controller manages and that are not being deleted.
func owned(c *control.Cluster, k control.Key) (out []*discoveryv1.EndpointSlice) {
	for s := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, servicebackends.ByService(), k.Namespace+"/"+k.Name) {
		if isManaged(s) && s.DeletionTimestamp == nil {
			out = append(out, s)
		}
	}
	return out
}

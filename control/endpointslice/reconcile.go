package endpointslice

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/control/backend"
	"proa.dev/kinds/gr"
)

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	s, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	if !found || !backend.Published(s) { // the slices of a Service that is gone go with it, as its dependents
		return 0, nil
	}
	p := decide(state{
		service: s, pods: backend.Pods(c, s), slices: owned(c, k),
		node: func(name string) *corev1.Node {
			n, _ := control.Get[*corev1.Node](c, gr.Nodes, "", name)
			return n
		},
		nodes: func() []*corev1.Node { return slices.Collect(control.List[*corev1.Node](c, gr.Nodes, "")) },
	})
	err := backend.Apply(ctx, c, p.create, p.update, p.remove)
	if err != nil && !apierrors.IsConflict(err) {
		c.Event(s, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices for Service %s/%s: %v", s.Namespace, s.Name, err)
	}
	if err == nil {
		for _, e := range p.events {
			c.Event(s, e.kind, e.reason, "%s", e.message)
		}
	}
	return 0, err
}

// owned are the slices of a Service that this loop has made and that stay.
func owned(c *control.Cluster, k control.Key) (out []*discoveryv1.EndpointSlice) {
	for s := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, backend.ByService(), k.Namespace+"/"+k.Name) {
		if managed(s) && s.DeletionTimestamp == nil {
			out = append(out, s)
		}
	}
	return out
}

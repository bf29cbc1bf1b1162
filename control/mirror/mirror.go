// Package mirror copies Endpoints that people make by hand, for Services without a selector, to EndpointSlices, so that what
// reads slices finds them.
package mirror

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/control"
	"proa.dev/control/backend"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	manager = "endpointslicemirroring-controller.k8s.io"
	// leader marks Endpoints that are used as a lock.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "endpointslicemirroring-controller", Component: "endpoint-slice-mirroring-controller", For: gr.Endpoints, Workers: 5,
		When: func(old, now kind.Object) bool { return (old != nil && wanted(old)) || (now != nil && wanted(now)) },
		Triggers: []control.Trigger{
			{On: gr.Services, Keys: control.Self, When: selectorMoved},
			{On: gr.EndpointSlices, Keys: source, When: func(old, now kind.Object) bool { return (old != nil && ours(old)) || (now != nil && ours(now)) }},
		},
		Writes:    []control.Write{{On: gr.EndpointSlices, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// wanted says that Endpoints do not refuse to be copied.
func wanted(o kind.Object) bool {
	_, lock := o.GetAnnotations()[leader]
	return !lock && o.GetLabels()[discoveryv1.LabelSkipMirror] != "true"
}

// selectorMoved says that a Service begins or ends to be one without a selector.
func selectorMoved(old, now kind.Object) bool {
	was, ok := old.(*corev1.Service)
	s, is := now.(*corev1.Service)
	if !ok || !is {
		return true
	}
	return (len(was.Spec.Selector) == 0) != (len(s.Spec.Selector) == 0)
}

func ours(o kind.Object) bool { return o.GetLabels()[discoveryv1.LabelManagedBy] == manager }

// source is the key of the Endpoints that a slice copies.
func source(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			yield(control.Key{Namespace: o.GetNamespace(), Name: name})
		}
	}
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	var have []*discoveryv1.EndpointSlice
	for s := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, backend.ByService(), k.Namespace+"/"+k.Name) {
		if ours(s) && s.DeletionTimestamp == nil {
			have = append(have, s)
		}
	}
	e, found := control.Get[*corev1.Endpoints](c, gr.Endpoints, k.Namespace, k.Name)
	s, served := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	if !found || !wanted(e) || !served || len(s.Spec.Selector) > 0 {
		return 0, backend.Apply(ctx, c, nil, nil, have)
	}
	p := decide(e, have)
	if err := backend.Apply(ctx, c, p.create, p.update, p.remove); err != nil {
		return 0, err
	}
	for _, w := range p.warnings {
		c.Event(e, corev1.EventTypeWarning, w.reason, "%s", w.message)
	}
	return 0, nil
}

// Package endpointslicemirroring mirrors Endpoints that users write for Services without a selector to EndpointSlices, for
// clients that read only slices.
package endpointslicemirroring

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/control"
	"proa.dev/control/lib/servicebackends"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	manager = "endpointslicemirroring-controller.k8s.io"
	// leader is the annotation of Endpoints that are a lock for leader election.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "endpointslicemirroring-controller", Component: "endpoint-slice-mirroring-controller", For: gr.Endpoints, Workers: 5,
		When: func(old, now kind.Object) bool {
			return (old != nil && isMirrored(old)) || (now != nil && isMirrored(now))
		},
		Triggers: []control.Trigger{
			{On: gr.Services, Keys: control.SameKey, When: changesSelector},
			{On: gr.EndpointSlices, Keys: endpointsOfSlice,
				When: func(old, now kind.Object) bool { return (old != nil && isOwn(old)) || (now != nil && isOwn(now)) }},
		},
		Writes:    []control.Write{{On: gr.EndpointSlices, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// isMirrored reports whether Endpoints are to be mirrored: they are not a lock, and have no label against it.
func isMirrored(o kind.Object) bool {
	_, lock := o.GetAnnotations()[leader]
	return !lock && o.GetLabels()[discoveryv1.LabelSkipMirror] != "true"
}

// changesSelector reports whether a Service has got or lost its selector.
func changesSelector(old, now kind.Object) bool {
	was, ok := old.(*corev1.Service)
	s, is := now.(*corev1.Service)
	if !ok || !is {
		return true
	}
	return (len(was.Spec.Selector) == 0) != (len(s.Spec.Selector) == 0)
}

func isOwn(o kind.Object) bool { return o.GetLabels()[discoveryv1.LabelManagedBy] == manager }

// endpointsOfSlice yields the key of the Endpoints that a slice mirrors.
func endpointsOfSlice(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			yield(control.Key{Namespace: o.GetNamespace(), Name: name})
		}
	}
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	var have []*discoveryv1.EndpointSlice
	for s := range control.By[*discoveryv1.EndpointSlice](c, gr.EndpointSlices, servicebackends.ByService(), k.Namespace+"/"+k.Name) {
		if isOwn(s) && s.DeletionTimestamp == nil {
			have = append(have, s)
		}
	}
	e, found := control.Get[*corev1.Endpoints](c, gr.Endpoints, k.Namespace, k.Name)
	s, served := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	if !found || !isMirrored(e) || !served || len(s.Spec.Selector) > 0 {
		return 0, servicebackends.Apply(ctx, c, nil, nil, have)
	}
	p := decide(e, have)
	if err := servicebackends.Apply(ctx, c, p.create, p.update, p.remove); err != nil {
		return 0, err
	}
	for _, w := range p.warnings {
		c.Event(e, corev1.EventTypeWarning, w.reason, "%s", w.message)
	}
	return 0, nil
}

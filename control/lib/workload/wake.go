package workload

import (
	"iter"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// WakeOwners returns the Keys of a trigger on owned objects: an object wakes the key of its controller owner or, if it has none,
// the keys of all objects of the resource on whose selector it matches. selector may return nil for an owner that selects
// nothing.
func WakeOwners(owner schema.GroupKind, on schema.GroupResource, selector func(kind.Object) labels.Selector) func(*control.Cluster,
	kind.Object) iter.Seq[control.Key] {
	controller := control.ControllerOwner(owner.Group, owner.Kind)
	return func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
		if metav1.GetControllerOfNoCopy(o) != nil {
			return controller(c, o)
		}
		return func(yield func(control.Key) bool) {
			for candidate := range c.View(on).List(o.GetNamespace()) {
				if s := selector(candidate); s != nil && !s.Empty() && s.Matches(labels.Set(o.GetLabels())) &&
					!yield(control.KeyOf(candidate)) {
					return
				}
			}
		}
	}
}

// WakesOwners is the When of a trigger with Wake: an object without a controller wakes owners only when it is created, or its
// labels or controller change.
func WakesOwners(old, now kind.Object) bool {
	switch {
	case old == nil:
		return true
	case now == nil:
		return metav1.GetControllerOfNoCopy(old) != nil
	}
	before, after := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(now)
	return after != nil || before != nil || !maps.Equal(old.GetLabels(), now.GetLabels())
}

// Selector converts a label selector of the API; nil if it is not valid.
func Selector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return out
}

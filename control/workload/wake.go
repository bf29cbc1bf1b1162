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

// Wake is the Keys of a trigger on what is owned: it wakes the controller of an object, and for one without a controller
// everybody in on whose selector it matches. selector may return nil for an owner that selects nothing.
func Wake(owner schema.GroupKind, on schema.GroupResource, selector func(kind.Object) labels.Selector) func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
	controller := control.Owner(owner.Group, owner.Kind)
	return func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
		if metav1.GetControllerOfNoCopy(o) != nil {
			return controller(c, o)
		}
		return func(yield func(control.Key) bool) {
			for candidate := range c.View(on).List(o.GetNamespace()) {
				if s := selector(candidate); s != nil && !s.Empty() && s.Matches(labels.Set(o.GetLabels())) && !yield(control.KeyOf(candidate)) {
					return
				}
			}
		}
	}
}

// Matters is the When of such a trigger: of objects without a controller only the beginning and changes of labels or
// owner wake anybody.
func Matters(old, now kind.Object) bool {
	switch {
	case old == nil:
		return true
	case now == nil:
		return metav1.GetControllerOfNoCopy(old) != nil
	}
	before, after := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(now)
	return after != nil || before != nil || !maps.Equal(old.GetLabels(), now.GetLabels())
}

// Selector reads a label selector of the API; nil when it is none.
func Selector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return out
}

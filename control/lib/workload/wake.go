package workload

import (
	"iter"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// WakeOwners returns the Keys of a trigger on owned objects: an object wakes the key of its controller owner or, if it has none,
// the keys of all objects of the resource on whose selector it matches. selector may return nil for an owner that selects
// nothing.
func WakeOwners(owner schema.GroupKind, on schema.GroupResource, selector func(kind.Object) labels.Selector) func(*control.Cluster,
	kind.Object) iter.Seq[control.Key] {
	controller := control.ControllerOwner(owner.Group, owner.Kind)
	index := bySelector(selector)
	return func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
		if metav1.GetControllerOfNoCopy(o) != nil {
			return controller(c, o)
		}
		return func(yield func(control.Key) bool) {
			values := []string{selectorKey(o.GetNamespace(), "", "")}
			for key, value := range o.GetLabels() {
				values = append(values, selectorKey(o.GetNamespace(), key, value))
			}
			for _, value := range values {
				for candidate := range c.View(on).By(index, value) {
					if s := selector(candidate); s != nil && !s.Empty() && s.Matches(labels.Set(o.GetLabels())) &&
						!yield(control.KeyOf(candidate)) {
						return
					}
				}
			}
		}
	}
}

// bySelector indexes owners by their namespace and the first label that their selector requires, so that an object without a controller
// is compared with few of the owners in its namespace. Owners whose selector requires no label of one value are all under no label.
func bySelector(selector func(kind.Object) labels.Selector) client.Index {
	return client.Index{Name: "ownerSelector", Values: func(o kind.Object) []string {
		s := selector(o)
		if s == nil || s.Empty() {
			return nil
		}
		requirements, _ := s.Requirements()
		for _, r := range requirements {
			op := r.Operator()
			if values := r.Values(); (op == selection.Equals || op == selection.DoubleEquals || op == selection.In) && values.Len() == 1 {
				return []string{selectorKey(o.GetNamespace(), r.Key(), values.UnsortedList()[0])}
			}
		}
		return []string{selectorKey(o.GetNamespace(), "", "")}
	}}
}

func selectorKey(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

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

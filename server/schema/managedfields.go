package schema

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// KeepTimes turns a write that changes nothing but timestamps of managedFields into a write that changes nothing: it
// gives the new object the timestamps of the old one, so that the store can see that they are equal. Call it after
// admission, just before the commit.
func KeepTimes(old, obj runtime.Object) {
	o, err := meta.Accessor(old)
	if err != nil {
		return
	}
	n, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	before, after := o.GetManagedFields(), n.GetManagedFields()
	if len(before) != len(after) || len(after) == 0 {
		return
	}
	changed := false
	for i := range after {
		a, b := before[i], after[i]
		changed = changed || !a.Time.Equal(b.Time)
		a.Time, b.Time = nil, nil
		if !reflect.DeepEqual(a, b) {
			return
		}
	}
	if !changed {
		return
	}
	// Compare the rest as if both had the same managedFields, and restore the entries of the new object if the rest
	// differs.
	n.SetManagedFields(before)
	if !sameObject(old, obj) {
		n.SetManagedFields(after)
	}
}

// sameObject compares typed objects as the store would write them, where nil and empty are equal, and unstructured ones
// strictly.
func sameObject(a, b runtime.Object) bool {
	if _, ok := a.(runtime.Unstructured); ok {
		return equality.Semantic.DeepEqualWithNilDifferentFromEmpty(a, b)
	}
	return equality.Semantic.DeepEqual(a, b)
}

// AfterAdmission checks the managedFields that mutating admission left in an object. If they are invalid, it restores
// those from before and returns the warning for the client; otherwise it returns "".
func AfterAdmission(obj runtime.Object, before []metav1.ManagedFieldsEntry) (warning string) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	if err := managedfields.ValidateManagedFields(m.GetManagedFields()); err != nil {
		m.SetManagedFields(before)
		return ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated " +
			"mutating admission controller; please fix your requests: " + err.Error()
	}
	return ""
}

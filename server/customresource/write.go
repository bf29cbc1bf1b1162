package customresource

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/kind"
)

// prepare sets what a client may not set: the status, where it is a subresource, and the generation.
func (v *version) prepare(o, old kind.Object) {
	obj := o.(*unstructured.Unstructured)
	if old == nil {
		if v.hasStatus() {
			delete(obj.Object, "status")
		}
		obj.SetGeneration(1)
		return
	}
	was := old.(*unstructured.Unstructured)
	if v.hasStatus() {
		copyField(obj, was, "status")
	}
	obj.SetGeneration(was.GetGeneration())
	if !sameExceptMetadata(obj.Object, was.Object) {
		obj.SetGeneration(was.GetGeneration() + 1)
	}
}

// copyField copies a field from another object.
func copyField(obj, from *unstructured.Unstructured, field string) {
	value, found := from.Object[field]
	if !found {
		delete(obj.Object, field)
		return
	}
	obj.Object[field] = value
}

func sameExceptMetadata(a, b map[string]any) bool {
	has := func(m map[string]any) int {
		if _, found := m["metadata"]; found {
			return len(m) - 1
		}
		return len(m)
	}
	if has(a) != has(b) {
		return false
	}
	for key, value := range a {
		if key == "metadata" {
			continue
		}
		other, found := b[key]
		if !found || !equality.Semantic.DeepEqual(value, other) {
			return false
		}
	}
	return true
}

// statusSub returns the status subresource, which only writes the status.
func (v *version) statusSub() *kind.SubDef {
	return &kind.SubDef{
		Name: "status", Verbs: []string{"get", "patch", "update"}, Reset: []string{"metadata", "spec"},
		Prepare: func(o, old kind.Object) {
			obj, was := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
			owners := obj.GetManagedFields()
			next := was.DeepCopy()
			copyField(next, obj, "status")
			next.SetManagedFields(owners)
			*obj = *next
		},
		Validate: v.validateStatus,
	}
}

// warnFinalizers warns of new finalizers whose names may collide with others.
func warnFinalizers(o, old kind.Object) (warnings []string) {
	var before []string
	if old != nil {
		before = old.GetFinalizers()
	}
	added := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(before, f) })
	slices.Sort(added)
	const path = "metadata.finalizers"
	for _, f := range slices.Compact(added) {
		for _, flaw := range utilvalidation.IsQualifiedName(f) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %s", path, f, flaw))
		}
		switch {
		case strings.Contains(f, "/") || f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents ||
			f == "kubernetes":
		case strings.Contains(f, "."):
			warnings = append(warnings, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", path, f))
		default:
			warnings = append(warnings, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers", path, f))
		}
	}
	return warnings
}

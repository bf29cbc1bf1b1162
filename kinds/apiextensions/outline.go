package apiextensions

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// outline returns a definition without its large parts: the schemas of its versions and its managedFields. A schema
// takes some 0.7 KiB of memory for each of its fields, and most definitions of a cluster are seldom used.
func outline(c *crd) *crd {
	out := *c
	out.ManagedFields = nil
	if _, found := c.Annotations[corev1.LastAppliedConfigAnnotation]; found { // it repeats the whole definition
		out.Annotations = maps.Clone(c.Annotations)
		delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	out.Spec.Versions = slices.Clone(c.Spec.Versions)
	for i := range out.Spec.Versions {
		out.Spec.Versions[i].Schema = nil
	}
	return &out
}

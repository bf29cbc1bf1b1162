// Package defaulting sets the values that the API server fills in where a client left a field out.
package defaulting

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// IfZero sets a field that has its zero value.
func IfZero[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// IfNil sets an optional field that is absent.
func IfNil[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// RoundUp rounds the quantities of a list up to a thousandth of a unit, the finest that the API keeps.
func RoundUp(list corev1.ResourceList) {
	for name, q := range maps.Clone(list) {
		if q.RoundUp(resource.Milli) {
			continue
		}
		list[name] = q
	}
}

// RoundUpRequirements is RoundUp for requests and limits, if there are any.
func RoundUpRequirements(r *corev1.ResourceRequirements) {
	if r != nil {
		RoundUp(r.Limits)
		RoundUp(r.Requests)
	}
}

package quota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Add is the sum of two lists.
func Add(a, b corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a)+len(b))
	for name, q := range a {
		sum := q.DeepCopy()
		if other, ok := b[name]; ok {
			sum.Add(other)
		}
		out[name] = sum
	}
	for name, q := range b {
		if _, done := out[name]; !done {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// Mask keeps what is named.
func Mask(list corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		if q, ok := list[name]; ok {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// Equal compares by value: 1000m is 1.
func Equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// growth is by how much a is more than b; what is not more is left out.
func growth(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		more := q.DeepCopy()
		if was, ok := b[name]; ok {
			more.Sub(was)
		}
		if more.Sign() > 0 {
			out[name] = more
		}
	}
	return out
}

// over names what of a is more than b allows.
func over(a, b corev1.ResourceList) (names []corev1.ResourceName) {
	for name, q := range a {
		if most, bound := b[name]; bound && q.Cmp(most) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// text writes a list as refusals show it: sorted, with commas.
func text(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

func join(names []corev1.ResourceName) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		parts = append(parts, string(name))
	}
	return strings.Join(parts, ",")
}

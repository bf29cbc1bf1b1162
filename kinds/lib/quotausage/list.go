package quotausage

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Add returns the sum of two lists.
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

// Mask returns the resources of a list that are named.
func Mask(list corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		if q, ok := list[name]; ok {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// Equal compares lists by value: 1000m equals 1.
func Equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// growth returns by how much a exceeds b; resources that do not are omitted.
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

// exceeded returns the resources of a that exceed those of b.
func exceeded(a, b corev1.ResourceList) (names []corev1.ResourceName) {
	for name, q := range a {
		if most, bound := b[name]; bound && q.Cmp(most) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// formatList returns a list as errors show it: sorted, with commas.
func formatList(list corev1.ResourceList) string {
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

package containerspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// All yields every container of a pod with the name of its list: first the init containers, then the containers, then
// the ephemeral containers.
func All(s *corev1.PodSpec) iter.Seq2[string, *corev1.Container] {
	return func(yield func(string, *corev1.Container) bool) {
		for i := range s.InitContainers {
			if !yield("initContainers", &s.InitContainers[i]) {
				return
			}
		}
		for i := range s.Containers {
			if !yield("containers", &s.Containers[i]) {
				return
			}
		}
		for i := range s.EphemeralContainers {
			if !yield("ephemeralContainers", (*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// WithPaths yields every container of a pod with its path below that of the spec.
func WithPaths(s *corev1.PodSpec, spec *field.Path) iter.Seq2[*corev1.Container, *field.Path] {
	return func(yield func(*corev1.Container, *field.Path) bool) {
		list, i := "", 0
		for name, c := range All(s) {
			if name != list {
				list, i = name, 0
			}
			if !yield(c, spec.Child(list).Index(i)) {
				return
			}
			i++
		}
	}
}

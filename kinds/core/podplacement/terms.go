package podplacement

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// PodTerms yields the terms of pod affinity and anti-affinity.
func PodTerms(a *corev1.Affinity) iter.Seq[*corev1.PodAffinityTerm] {
	return func(yield func(*corev1.PodAffinityTerm) bool) {
		var preferred [][]corev1.WeightedPodAffinityTerm
		var required [][]corev1.PodAffinityTerm
		if p := a.PodAffinity; p != nil {
			preferred, required = append(preferred, p.PreferredDuringSchedulingIgnoredDuringExecution), append(required,
				p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			preferred, required = append(preferred, p.PreferredDuringSchedulingIgnoredDuringExecution), append(required,
				p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		for _, list := range preferred {
			for i := range list {
				if !yield(&list[i].PodAffinityTerm) {
					return
				}
			}
		}
		for _, list := range required {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

package fact

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// AllContainers iterates over all containers of a Pod: init containers, regular containers and ephemeral containers.
func AllContainers(p *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield((*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// FullName returns the name, namespace and UID of a Pod, as kubelets write them in messages.
func FullName(p *corev1.Pod) string { return p.Name + "_" + p.Namespace + "(" + string(p.UID) + ")" }

package mutate

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/kind"
)

// alwaysPull makes nodes ask for the right to an image each time, so that nobody runs what another pod has pulled.
func alwaysPull(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "" {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !newImages(&pod.Spec, &old.Spec) {
		return nil
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].ImagePullPolicy = corev1.PullAlways
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		pod.Spec.EphemeralContainers[i].ImagePullPolicy = corev1.PullAlways
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// newImages says that a container has an image that no container had before.
func newImages(spec, old *corev1.PodSpec) bool {
	images := func(s *corev1.PodSpec) (out []string) {
		for _, c := range slices.Concat(s.InitContainers, s.Containers) {
			out = append(out, c.Image)
		}
		for _, c := range s.EphemeralContainers {
			out = append(out, c.Image)
		}
		return out
	}
	had := images(old)
	return slices.ContainsFunc(images(spec), func(image string) bool { return !slices.Contains(had, image) })
}

// tolerateDevices lets pods that ask for an extended resource onto the nodes that are kept for such pods.
func tolerateDevices(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "" {
		return nil
	}
	asked := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for name := range c.Resources.Requests {
			if isExtended(string(name)) {
				asked[string(name)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

// isExtended says that the name of a resource is a vendor's or an administrator's.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

package mutate

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// alwaysPull makes nodes verify the access to an image for each pod, so that nobody runs an image that only another pod
// may pull.
func alwaysPull(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "" {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !admissionlib.HasNewImages(&pod.Spec, &old.Spec) {
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

// tolerateExtendedResources adds tolerations for the extended resources that a pod requests, so that it fits on the
// nodes reserved for such pods.
func tolerateExtendedResources(_ context.Context, a *kind.Admission) error {
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

// isExtended reports whether the name of a resource is defined by a vendor or an administrator.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

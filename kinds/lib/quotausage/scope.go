package quotausage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// Scopes returns all scopes of a quota, in the form of its selector.
func Scopes(spec *corev1.ResourceQuotaSpec) []corev1.ScopedResourceSelectorRequirement {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, scope := range spec.Scopes {
		out = append(out, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if spec.ScopeSelector != nil {
		out = append(out, spec.ScopeSelector.MatchExpressions...)
	}
	return out
}

// InScopes reports whether an object is in every scope of a quota. A quota with scopes counts nothing that they do not fit.
func (c Counter) InScopes(spec *corev1.ResourceQuotaSpec, obj kind.Object) bool {
	all := Scopes(spec)
	return len(matchingScopes(obj, all)) == len(all)
}

// matchingScopes returns the scopes that an object is in.
func matchingScopes(obj kind.Object, scopes []corev1.ScopedResourceSelectorRequirement) (out []corev1.ScopedResourceSelectorRequirement) {
	for _, s := range scopes {
		switch o := obj.(type) {
		case *corev1.Pod:
			if podInScope(o, s) {
				out = append(out, s)
			}
		case *corev1.PersistentVolumeClaim:
			if s.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && selects(s, attributeClasses(o)) {
				out = append(out, s)
			}
		}
	}
	return out
}

func podInScope(pod *corev1.Pod, s corev1.ScopedResourceSelectorRequirement) bool {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(pod)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(pod)
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		var class []string
		if pod.Spec.PriorityClassName != "" {
			class = append(class, pod.Spec.PriorityClassName)
		}
		return selects(s, class)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return pod.Spec.Affinity != nil && isCrossNamespace(pod.Spec.Affinity)
	}
	return false
}

// selects reports whether a requirement matches one of the names. Without names, NotIn and DoesNotExist match.
func selects(s corev1.ScopedResourceSelectorRequirement, names []string) bool {
	among := func(name string) bool { return slices.Contains(s.Values, name) }
	switch s.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(names) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(names) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(names, among)
	case corev1.ScopeSelectorOpNotIn:
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !among(name) })
	}
	return false
}

// isTerminating reports whether a pod runs for a bounded time.
func isTerminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// isBestEffort reports whether a pod has neither requests nor limits of CPU and memory. A pod that the server has
// processed has the class in its status.
func isBestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	asks := func(r *corev1.ResourceRequirements) bool {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Sign() > 0 || limit.Sign() > 0 {
				return true
			}
		}
		return false
	}
	if pod.Spec.Resources != nil {
		return !asks(pod.Spec.Resources)
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if asks(&list[i].Resources) {
				return false
			}
		}
	}
	return true
}

// isCrossNamespace reports whether an affinity refers to pods in other namespaces.
func isCrossNamespace(a *corev1.Affinity) bool {
	out := func(t *corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
		return slices.ContainsFunc(required, func(t corev1.PodAffinityTerm) bool { return out(&t) }) ||
			slices.ContainsFunc(preferred, func(t corev1.WeightedPodAffinityTerm) bool { return out(&t.PodAffinityTerm) })
	}
	if p := a.PodAffinity; p != nil &&
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution) {
		return true
	}
	p := a.PodAntiAffinity
	return p != nil && terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
}

package podkind

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podspec"
)

// validateResize checks a change of the resources of a running pod.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	switch {
	case podspec.IsMirror(&old.ObjectMeta):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case podspec.IsWindows(&old.Spec):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	spec := field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateWholePod(p, podAllowances(old))...)
	was := old.Status.QOSClass
	if was == "" {
		was = podspec.QOSClass(&old.Spec)
	}
	if was != podspec.QOSClass(&p.Spec) {
		errs = append(errs, field.Invalid(spec, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if !supportsResize(&old.Status) {
		errs = append(errs, field.Forbidden(spec, "Pod running on node without support for resize"))
	}
	rest := p.Spec.DeepCopy()
	if anyResources(old.Spec.Resources) || anyResources(p.Spec.Resources) {
		errs = append(errs, validatePodResize(rest, &old.Spec, spec)...)
	}
	if bad := validateSameContainers(&p.Spec, &old.Spec, spec); bad != nil {
		return append(errs, bad...)
	}
	for i := range old.Spec.InitContainers {
		errs = append(errs, validateNotRemoved(&p.Spec.InitContainers[i].Resources, &old.Spec.InitContainers[i].Resources,
			spec.Child("initContainers").Index(i).Child("resources"), "")...)
	}
	for i := range old.Spec.Containers {
		errs = append(errs, validateNotRemoved(&p.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources,
			spec.Child("containers").Index(i).Child("resources"), "")...)
	}
	for i := range rest.Containers {
		revertCPUAndMemory(&rest.Containers[i].Resources, &old.Spec.Containers[i].Resources)
		if !equality.Semantic.DeepEqual(rest.Containers[i], old.Spec.Containers[i]) {
			errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable"))
		}
	}
	errs = append(errs, validateInitResize(rest, &old.Spec, spec.Child("initContainers"))...)
	if !equality.Semantic.DeepEqual(p.Spec.Volumes, old.Spec.Volumes) {
		errs = append(errs, field.Forbidden(spec.Child("volumes"), "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled"))
	}
	if len(errs) == 0 && !equality.Semantic.DeepEqual(*rest, old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable"))
	}
	return errs
}

func anyResources(r *corev1.ResourceRequirements) bool {
	return r != nil && len(r.Requests)+len(r.Limits) > 0
}

// supportsResize reports whether the node of a pod supports resizing: it then reports the resources of running
// containers.
func supportsResize(s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

// validatePodResize checks the pod-level resources and reverts CPU and memory in rest.
func validatePodResize(rest, old *corev1.PodSpec, spec *field.Path) field.ErrorList {
	at := spec.Child("resources")
	if old.Resources != nil && rest.Resources == nil {
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	}
	var errs field.ErrorList
	was := &corev1.ResourceRequirements{}
	if old.Resources != nil {
		was = old.Resources
		errs = validateNotRemoved(rest.Resources, was, at, "pod-level ")
	}
	if r := rest.Resources; r != nil {
		revertCPUAndMemory(r, was)
		if old.Resources == nil && len(r.Requests) == 0 && len(r.Limits) == 0 && len(r.Claims) == 0 {
			rest.Resources = nil
		}
	}
	if !equality.Semantic.DeepEqual(rest.Resources, old.Resources) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable at pod-level"))
	}
	return errs
}

func validateSameContainers(s, old *corev1.PodSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was []corev1.Container
	}{{"containers", s.Containers, old.Containers}, {"initContainers", s.InitContainers, old.InitContainers}} {
		if len(list.is) != len(list.was) {
			errs = append(errs, field.Forbidden(spec.Child(list.name), list.name+" may not be added or removed on resize"))
			continue
		}
		for i := range list.is {
			if list.is[i].Name != list.was[i].Name {
				errs = append(errs, field.Forbidden(spec.Child(list.name).Index(i).Child("name"),
					list.name+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

// validateNotRemoved refuses to remove requests or limits.
func validateNotRemoved(is, was *corev1.ResourceRequirements, at *field.Path, whose string) field.ErrorList {
	removed := func(is, was corev1.ResourceList) bool {
		for res := range was {
			if _, still := is[res]; !still {
				return true
			}
		}
		return false
	}
	var errs field.ErrorList
	if removed(is.Requests, was.Requests) {
		errs = append(errs, field.Forbidden(at.Child("requests"), whose+"resource requests cannot be removed"))
	}
	if removed(is.Limits, was.Limits) {
		errs = append(errs, field.Forbidden(at.Child("limits"), whose+"resource limits cannot be removed"))
	}
	return errs
}

// revertCPUAndMemory sets CPU and memory to their old values.
func revertCPUAndMemory(is, was *corev1.ResourceRequirements) {
	back := func(is, was corev1.ResourceList) corev1.ResourceList {
		if is == nil && was == nil {
			return nil
		}
		out := corev1.ResourceList{}
		for res, q := range is {
			if res != corev1.ResourceCPU && res != corev1.ResourceMemory {
				out[res] = q
			}
		}
		for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, set := was[res]; set {
				out[res] = q
			}
		}
		return out
	}
	is.Requests, is.Limits = back(is.Requests, was.Requests), back(is.Limits, was.Limits)
}

func validateInitResize(rest, old *corev1.PodSpec, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range rest.InitContainers {
		c, was := &rest.InitContainers[i], &old.InitContainers[i]
		changed := !equality.Semantic.DeepEqual(*c, *was)
		revertCPUAndMemory(&c.Resources, &was.Resources)
		if !equality.Semantic.DeepEqual(*c, *was) {
			errs = append(errs, field.Forbidden(list.Index(i), "only cpu and memory resources for init or sidecar containers are mutable"))
		}
		if !changed || containerspec.IsSidecar(c) {
			continue
		}
		for _, policy := range c.ResizePolicy {
			if policy.RestartPolicy == corev1.RestartContainer {
				errs = append(errs, field.Forbidden(list.Index(i), "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
			}
		}
	}
	return errs
}

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/lib/resourcename"
)

// QOSClass returns the quality of service class of a pod.
func QOSClass(s *corev1.PodSpec) corev1.PodQOSClass {
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: *s}) {
		return resourcesQOS(s.Resources)
	}
	var pod corev1.PodQOSClass
	for list, c := range containerspec.All(s) {
		if list == "ephemeralContainers" {
			continue
		}
		class := resourcesQOS(&c.Resources)
		if pod == "" {
			pod = class
		}
		if class == corev1.PodQOSBurstable || pod != class {
			return corev1.PodQOSBurstable
		}
	}
	if pod == "" {
		return corev1.PodQOSBestEffort
	}
	return pod
}

func resourcesQOS(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	class := func(res corev1.ResourceName) corev1.PodQOSClass {
		request, limit := r.Requests[res], r.Limits[res]
		switch {
		case !request.Equal(limit):
			return corev1.PodQOSBurstable
		case request.IsZero():
			return corev1.PodQOSBestEffort
		}
		return corev1.PodQOSGuaranteed
	}
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	cpu, memory := class(corev1.ResourceCPU), class(corev1.ResourceMemory)
	if cpu != memory {
		return corev1.PodQOSBurstable
	}
	return cpu
}

// DefaultResources completes the pod-level resources, if the pod has any, from those of its containers.
func DefaultResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: s.Containers, InitContainers: s.InitContainers}}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for res, q := range limits {
		if _, asked := r.Requests[res]; !asked && resourcehelper.IsSupportedPodLevelResource(res) && resourcename.IsHugePages(res) {
			setDefault(&r.Limits, res, q)
		}
	}
	for res, q := range requests {
		if resourcehelper.IsSupportedPodLevelResource(res) && resourcename.CanOvercommit(res) {
			setDefault(&r.Requests, res, q)
		}
	}
	for res, q := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(res) {
			setDefault(&r.Requests, res, q)
		}
	}
	for res, request := range r.Requests {
		limit, known := limits[res]
		if !known || !resourcehelper.IsSupportedPodLevelResource(res) || !allHaveLimit(s, res) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setDefault(&r.Limits, res, limit)
	}
}

// setDefault adds a resource to a list that does not have it.
func setDefault(list *corev1.ResourceList, res corev1.ResourceName, q resource.Quantity) {
	if _, set := (*list)[res]; set {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[res] = q.DeepCopy()
}

// allHaveLimit reports whether every container has a limit for a resource.
func allHaveLimit(s *corev1.PodSpec, res corev1.ResourceName) bool {
	for _, c := range containerspec.All(s) {
		if _, set := c.Resources.Limits[res]; !set {
			return false
		}
	}
	return true
}

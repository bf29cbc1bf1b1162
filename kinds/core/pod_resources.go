package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// QOS is the quality of service a pod gets: all it asks for, at least that, or what is left.
func QOS(s *corev1.PodSpec) corev1.PodQOSClass {
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: *s}) {
		return resourcesQOS(s.Resources)
	}
	var pod corev1.PodQOSClass
	for list, c := range containersOf(s) {
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

// defaultPodResources completes the resources of the whole pod from those of its containers, if it has any.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: s.Containers, InitContainers: s.InitContainers}}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for res, q := range limits {
		if _, asked := r.Requests[res]; !asked && resourcehelper.IsSupportedPodLevelResource(res) && isHugePages(res) {
			setDefault(&r.Limits, res, q)
		}
	}
	for res, q := range requests {
		if resourcehelper.IsSupportedPodLevelResource(res) && overcommits(res) {
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
		if !known || !resourcehelper.IsSupportedPodLevelResource(res) || !allLimit(s, res) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setDefault(&r.Limits, res, limit)
	}
}

// setDefault adds a resource to a list that does not name it.
func setDefault(list *corev1.ResourceList, res corev1.ResourceName, q resource.Quantity) {
	if _, set := (*list)[res]; set {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[res] = q.DeepCopy()
}

// allLimit says whether every container limits a resource.
func allLimit(s *corev1.PodSpec, res corev1.ResourceName) bool {
	for _, c := range containersOf(s) {
		if _, set := c.Resources.Limits[res]; !set {
			return false
		}
	}
	return true
}

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/period"
)

// podUsage adds what a pod uses. A pod that has ended is only counted as stored.
func podUsage(used corev1.ResourceList, pod *corev1.Pod, now time.Time) {
	if !alive(pod, now) {
		return
	}
	// What a node has given counts as long as a smaller wish is not yet carried out.
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	maps.Copy(used, computeUsage(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)))
}

// alive says that a pod still uses something. One that should have ended does not: its node may be lost, and its user
// cannot help that.
func alive(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	grace := period.Seconds(*pod.DeletionGracePeriodSeconds)
	return !now.After(pod.DeletionTimestamp.Add(grace))
}

// computeUsage names requests and limits as quotas do. Requests go by two names.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	for name, q := range requests {
		requested := corev1.DefaultResourceRequestsPrefix + name
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[requested] = q, q
		case isExtended(name):
			used[requested] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[name]; ok {
			used["limits."+name] = q
		}
	}
	return used
}

// isExtended says that pods get a resource of that name from a device plugin or a device class.
func isExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// extendedName says that a quota bounds the requests of an extended resource by that name.
func extendedName(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!isNative(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

func podName(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || extendedName(name)
}

// missing refuses a pod with containers that do not say what a quota needs to know. Only cpu and memory must be said, for
// historical reasons; a pod that says it for all its containers together has said it.
func missing(names []corev1.ResourceName, pod *corev1.Pod) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var parts []string
	for _, name := range names {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
			corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		default:
			continue
		}
		if silent := silentAbout(name, pod); len(silent) > 0 {
			parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(silent, ",")))
		}
	}
	if parts == nil {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// silentAbout names the containers that do not say how much they want of a resource.
func silentAbout(name corev1.ResourceName, pod *corev1.Pod) (names []string) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			r := &list[i].Resources
			if _, said := computeUsage(r.Requests, r.Limits)[name]; !said && !slices.Contains(names, list[i].Name) {
				names = append(names, list[i].Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// resized says that a node has given a container something else than before.
func resized(pod, old *corev1.Pod) bool {
	differ := func(now, was []corev1.ContainerStatus) bool {
		for i := range was {
			at := slices.IndexFunc(now, func(s corev1.ContainerStatus) bool { return s.Name == was[i].Name })
			if at >= 0 && !equality.Semantic.DeepEqual(now[at].Resources, was[i].Resources) {
				return true
			}
		}
		return false
	}
	return differ(pod.Status.ContainerStatuses, old.Status.ContainerStatuses) ||
		differ(pod.Status.InitContainerStatuses, old.Status.InitContainerStatuses)
}

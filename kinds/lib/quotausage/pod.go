package quotausage

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
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/duration"
	"proa.dev/kinds/lib/resourcename"
)

// podUsage adds the usage of a pod. A pod that has ended counts as a stored object only.
func podUsage(used corev1.ResourceList, pod *corev1.Pod, now time.Time) {
	if !isAlive(pod, now) {
		return
	}
	// Allocated resources count until the node has applied a smaller request.
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	maps.Copy(used, computeUsage(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)))
}

// isAlive reports whether a pod still uses resources. A pod past its deletion deadline does not: its node may be lost,
// and the user of the pod cannot help that.
func isAlive(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	grace := duration.FromSeconds(*pod.DeletionGracePeriodSeconds)
	return !now.After(pod.DeletionTimestamp.Add(grace))
}

// computeUsage returns requests and limits by the names that quotas have for them. Requests have two names.
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

// isExtended reports whether a resource comes from a device plugin or a device class.
func isExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return resourcename.IsExtended(name)
}

// isExtendedQuota reports whether a quota bounds the requests of an extended resource by that name.
func isExtendedQuota(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!resourcename.IsNative(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

func podName(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || isExtendedQuota(name)
}

// validateRequests refuses a pod with containers that lack requests or limits that a quota bounds. Only CPU and memory are
// required, for historical reasons; pod-level resources are enough.
func validateRequests(names []corev1.ResourceName, pod *corev1.Pod) error {
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
		if silent := containersWithout(name, pod); len(silent) > 0 {
			parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(silent, ",")))
		}
	}
	if parts == nil {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// containersWithout returns the containers without a request or limit for a resource.
func containersWithout(name corev1.ResourceName, pod *corev1.Pod) (names []string) {
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

// wasResized reports whether the resources that a node has allocated to a container have changed.
func wasResized(pod, old *corev1.Pod) bool {
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

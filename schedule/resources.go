package schedule

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// Resources are amounts as plain numbers.
type Resources struct {
	CPU     int64 // in thousandths
	Memory  int64
	Storage int64 // ephemeral
	Pods    int64
	// Scalars are all others. The map is shared and read-only; nil is empty.
	Scalars map[corev1.ResourceName]int64
}

// What a container without requests counts for where pods shall be spread evenly.
const (
	defaultCPU    = 100
	defaultMemory = 200 << 20
)

// NewResources reads a list.
func NewResources(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.CPU = q.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.Storage = q.Value()
		case corev1.ResourcePods:
			r.Pods = q.Value()
		default:
			if !IsScalar(name) {
				continue
			}
			if r.Scalars == nil {
				r.Scalars = map[corev1.ResourceName]int64{}
			}
			r.Scalars[name] = q.Value()
		}
	}
	return r
}

// Of is the amount of one resource.
func (r *Resources) Of(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.CPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.Storage
	case corev1.ResourcePods:
		return r.Pods
	}
	return r.Scalars[name]
}

// add adds b times by, which is 1 or -1. The map is replaced, not changed.
func (r *Resources) add(b *Resources, by int64) {
	r.CPU += by * b.CPU
	r.Memory += by * b.Memory
	r.Storage += by * b.Storage
	if len(b.Scalars) == 0 {
		return
	}
	sum := maps.Clone(r.Scalars)
	if sum == nil {
		sum = map[corev1.ResourceName]int64{}
	}
	for name, n := range b.Scalars {
		sum[name] += by * n
	}
	r.Scalars = sum
}

// compare says whether any amount is smaller, and whether any is larger in b.
func (r *Resources) compare(b *Resources) (down, up bool) {
	one := func(was, is int64) {
		down, up = down || is < was, up || is > was
	}
	one(r.CPU, b.CPU)
	one(r.Memory, b.Memory)
	one(r.Storage, b.Storage)
	for name, n := range r.Scalars {
		one(n, b.Scalars[name])
	}
	for name, n := range b.Scalars {
		one(r.Scalars[name], n)
	}
	return down, up
}

// IsExtended says that a resource belongs to nobody known, such as example.com/gpu.
func IsExtended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}

// IsScalar says that a resource is counted in whole units that nobody defines further.
func IsScalar(name corev1.ResourceName) bool {
	s := string(name)
	return IsExtended(name) || strings.HasPrefix(s, corev1.ResourceHugePagesPrefix) ||
		strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(s, corev1.ResourceAttachableVolumesPrefix)
}

// requests are what a pod counts for on its node: what it asks for, or has been given while a resize is under way. cpu and
// memory are the same with defaults for containers that ask for nothing.
func requests(pod *corev1.Pod) (plain Resources, cpu, memory int64) {
	if isSimple(pod) {
		return simpleRequests(pod)
	}
	options := helper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	list := helper.PodRequests(pod, options)
	plain = NewResources(list)
	options.NonMissingContainerRequests = missing(pod, list)
	filled := list
	if len(options.NonMissingContainerRequests) > 0 {
		filled = helper.PodRequests(pod, options)
	}
	return plain, filled.Cpu().MilliValue(), filled.Memory().Value()
}

// isSimple says that what a pod counts for is the sum of its containers.
func isSimple(pod *corev1.Pod) bool {
	if len(pod.Spec.InitContainers) > 0 || pod.Spec.Resources != nil || pod.Status.Resources != nil || pod.Status.AllocatedResources != nil {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Resources != nil || len(c.AllocatedResources) > 0 {
			return false
		}
	}
	return true
}

// simpleRequests adds up, which for most pods is all there is to do. It saves the maps that the general way makes.
func simpleRequests(pod *corev1.Pod) (plain Resources, cpu, memory int64) {
	add := func(list corev1.ResourceList, fill bool) {
		r := NewResources(list)
		plain.add(&r, 1)
		cpu += r.CPU
		memory += r.Memory
		if !fill {
			return
		}
		if _, asked := list[corev1.ResourceCPU]; !asked {
			cpu += defaultCPU
		}
		if _, asked := list[corev1.ResourceMemory]; !asked {
			memory += defaultMemory
		}
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Resources.Requests, true)
	}
	if len(pod.Spec.Overhead) > 0 {
		add(pod.Spec.Overhead, false)
	}
	return plain, cpu, memory
}

// sameDemand says that a pod counts for the same in two of its states.
func sameDemand(a, b *corev1.Pod) bool {
	containers := func(x, y []corev1.Container) bool {
		return slices.EqualFunc(x, y, func(c, d corev1.Container) bool { return sameResources(c.Resources.Requests, d.Resources.Requests) })
	}
	given := func(x, y []corev1.ContainerStatus) bool {
		return slices.EqualFunc(x, y, func(c, d corev1.ContainerStatus) bool {
			return c.Name == d.Name && sameResources(c.AllocatedResources, d.AllocatedResources) && sameNeeds(c.Resources, d.Resources)
		})
	}
	return containers(a.Spec.Containers, b.Spec.Containers) && containers(a.Spec.InitContainers, b.Spec.InitContainers) &&
		sameNeeds(a.Spec.Resources, b.Spec.Resources) && sameResources(a.Spec.Overhead, b.Spec.Overhead) &&
		given(a.Status.ContainerStatuses, b.Status.ContainerStatuses) && given(a.Status.InitContainerStatuses, b.Status.InitContainerStatuses) &&
		sameNeeds(a.Status.Resources, b.Status.Resources) && sameResources(a.Status.AllocatedResources, b.Status.AllocatedResources)
}

func sameNeeds(a, b *corev1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameResources(a.Requests, b.Requests)
}

// missing are the defaults that apply. A pod with requests of its own gets one only for what nobody asks for.
func missing(pod *corev1.Pod, list corev1.ResourceList) corev1.ResourceList {
	cpu, memory := *resource.NewMilliQuantity(defaultCPU, resource.DecimalSI), *resource.NewQuantity(defaultMemory, resource.DecimalSI)
	if !helper.IsPodLevelRequestsSet(pod) {
		return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
	}
	out := corev1.ResourceList{}
	if _, asked := list[corev1.ResourceCPU]; !asked {
		out[corev1.ResourceCPU] = cpu
	}
	if _, asked := list[corev1.ResourceMemory]; !asked {
		out[corev1.ResourceMemory] = memory
	}
	return out
}

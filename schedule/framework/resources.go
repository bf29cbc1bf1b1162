package framework

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
)

// Resources are amounts of resources as integers.
type Resources struct {
	CPU     int64 // in millicores
	Memory  int64
	Storage int64 // ephemeral
	Pods    int64
	// Scalars has all other resources. The map is shared and read-only.
	Scalars map[corev1.ResourceName]int64
}

// DefaultCPURequest and DefaultMemoryRequest are what a container without requests counts for when Pods are spread
// evenly.
const (
	DefaultCPURequest    = 100
	DefaultMemoryRequest = 200 << 20
)

// NewResources returns the amounts of a resource list.
func NewResources(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.CPU = quantity.MilliValue(&q)
		case corev1.ResourceMemory:
			r.Memory = quantity.Value(&q)
		case corev1.ResourceEphemeralStorage:
			r.Storage = quantity.Value(&q)
		case corev1.ResourcePods:
			r.Pods = quantity.Value(&q)
		default:
			if !IsScalar(name) {
				continue
			}
			if r.Scalars == nil {
				r.Scalars = map[corev1.ResourceName]int64{}
			}
			r.Scalars[name] = quantity.Value(&q)
		}
	}
	return r
}

// Of returns the amount of one resource.
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

// add adds b multiplied by by, which is 1 or -1. The map is replaced, not changed.
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

// limit limits the amounts of one Pod, so that those of all Pods of a node can be added up and subtracted again.
func (r *Resources) limit() {
	r.CPU, r.Memory, r.Storage = min(r.CPU, quantity.MaxAmount), min(r.Memory, quantity.MaxAmount), min(r.Storage, quantity.MaxAmount)
	for name, n := range r.Scalars {
		r.Scalars[name] = min(n, quantity.MaxAmount)
	}
}

// compare reports whether any amount is smaller in b, and whether any is larger.
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

// IsExtended reports whether a resource is an extended resource, such as example.com/gpu.
func IsExtended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}

// IsScalar reports whether a resource is kept in Resources.Scalars: extended resources, huge pages and attachable
// volumes.
func IsScalar(name corev1.ResourceName) bool {
	s := string(name)
	return IsExtended(name) || strings.HasPrefix(s, corev1.ResourceHugePagesPrefix) ||
		strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(s, corev1.ResourceAttachableVolumesPrefix)
}

// podRequests returns the resources that a Pod takes on its node: its requests, or what is allocated while a resize is
// in progress. cpu and memory include defaults for containers without requests.
func podRequests(pod *corev1.Pod) (plain Resources, cpu, memory int64) {
	if isSumOfContainers(pod) {
		return sumOfContainers(pod)
	}
	options := helper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	list := helper.PodRequests(pod, options)
	plain = NewResources(list)
	options.NonMissingContainerRequests = defaultRequests(pod, list)
	filled := list
	if len(options.NonMissingContainerRequests) > 0 {
		filled = helper.PodRequests(pod, options)
	}
	return plain, quantity.MilliValue(filled.Cpu()), quantity.Value(filled.Memory())
}

// isSumOfContainers reports whether the requests of a Pod are the sum of those of its containers: it has no init
// containers, Pod-level resources or resize.
func isSumOfContainers(pod *corev1.Pod) bool {
	if len(pod.Spec.InitContainers) > 0 || pod.Spec.Resources != nil || pod.Status.Resources != nil ||
		pod.Status.AllocatedResources != nil {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Resources != nil || len(c.AllocatedResources) > 0 {
			return false
		}
	}
	return true
}

// sumOfContainers adds up the requests of the containers. This suffices for most Pods, and needs less memory than the
// general case.
func sumOfContainers(pod *corev1.Pod) (plain Resources, cpu, memory int64) {
	add := func(list corev1.ResourceList, fill bool) {
		r := NewResources(list)
		plain.add(&r, 1)
		plain.limit()
		if _, asked := list[corev1.ResourceCPU]; !asked && fill {
			r.CPU = DefaultCPURequest
		}
		if _, asked := list[corev1.ResourceMemory]; !asked && fill {
			r.Memory = DefaultMemoryRequest
		}
		cpu, memory = min(cpu+r.CPU, quantity.MaxAmount), min(memory+r.Memory, quantity.MaxAmount)
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Resources.Requests, true)
	}
	if len(pod.Spec.Overhead) > 0 {
		add(pod.Spec.Overhead, false)
	}
	return plain, cpu, memory
}

// hasEqualRequests reports whether two states of a Pod have the same requests.
func hasEqualRequests(a, b *corev1.Pod) bool {
	containers := func(x, y []corev1.Container) bool {
		return slices.EqualFunc(x, y, func(c,
			d corev1.Container) bool {
			return equalResources(c.Resources.Requests, d.Resources.Requests)
		})
	}
	given := func(x, y []corev1.ContainerStatus) bool {
		return slices.EqualFunc(x, y, func(c, d corev1.ContainerStatus) bool {
			return c.Name == d.Name && equalResources(c.AllocatedResources, d.AllocatedResources) &&
				equalRequirements(c.Resources, d.Resources)
		})
	}
	return containers(a.Spec.Containers, b.Spec.Containers) && containers(a.Spec.InitContainers, b.Spec.InitContainers) &&
		equalRequirements(a.Spec.Resources, b.Spec.Resources) && equalResources(a.Spec.Overhead, b.Spec.Overhead) &&
		given(a.Status.ContainerStatuses, b.Status.ContainerStatuses) &&
		given(a.Status.InitContainerStatuses, b.Status.InitContainerStatuses) &&
		equalRequirements(a.Status.Resources, b.Status.Resources) &&
		equalResources(a.Status.AllocatedResources, b.Status.AllocatedResources)
}

func equalRequirements(a, b *corev1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalResources(a.Requests, b.Requests)
}

// defaultRequests returns the defaults for containers without requests. A Pod with Pod-level requests gets a default
// only for resources that these do not have.
func defaultRequests(pod *corev1.Pod, list corev1.ResourceList) corev1.ResourceList {
	cpu, memory := *resource.NewMilliQuantity(DefaultCPURequest, resource.DecimalSI), *resource.NewQuantity(DefaultMemoryRequest,
		resource.DecimalSI)
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

package fit

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/schedule/framework"
)

// strategy is the scoring strategy. The zero value prefers nodes with low utilization of CPU and memory.
type strategy struct {
	Type strategyType
	// Resources are the resources that are scored, with their weights.
	Resources []weightedResource
	// Shape is the scoring function of RequestedToCapacityRatio.
	Shape []framework.ShapePoint
}

// strategyType is the type of a strategy, as in the configuration file.
type strategyType string

// The strategies.
const (
	LeastAllocated           strategyType = "LeastAllocated"
	MostAllocated            strategyType = "MostAllocated"
	RequestedToCapacityRatio strategyType = "RequestedToCapacityRatio"
)

// weightedResource is a resource with its weight.
type weightedResource struct {
	Name   corev1.ResourceName
	Weight int64
}

func defaultResources() []weightedResource {
	return []weightedResource{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}
}

// score returns the scoring function for a Pod.
func (s strategy) score(p *framework.PodInfo) func(*framework.NodeInfo) int64 {
	resources := s.Resources
	if len(resources) == 0 {
		resources = defaultResources()
	}
	asks := requestedAmounts(p, resources, true)
	one := leastAllocated
	ratio := s.Type == RequestedToCapacityRatio
	switch s.Type {
	case MostAllocated:
		one = mostAllocated
	case RequestedToCapacityRatio:
		one = func(taken, has int64) int64 {
			if taken > has {
				return framework.Interpolate(s.Shape, 100)
			}
			return framework.Interpolate(s.Shape, taken*100/has)
		}
	case LeastAllocated:
	}
	return func(n *framework.NodeInfo) int64 {
		var sum, weights int64
		for i := range resources {
			has, taken := usage(n, resources[i].Name, asks[i], true)
			if has == 0 {
				continue
			}
			v := one(taken+asks[i], has)
			if ratio && v <= 0 {
				continue
			}
			sum += v * resources[i].Weight
			weights += resources[i].Weight
		}
		if weights == 0 {
			return 0
		}
		if ratio {
			return int64(math.Round(float64(sum) / float64(weights)))
		}
		return sum / weights
	}
}

func leastAllocated(taken, has int64) int64 {
	if taken > has {
		return 0
	}
	return (has - taken) * framework.MaxScore / has
}

func mostAllocated(taken, has int64) int64 { return min(taken, has) * framework.MaxScore / has }

// usage returns how much of a resource a node has, and how much of it is requested; both are 0 for an extended resource
// that the Pod does not request. With nonZero, containers without requests count with defaults.
func usage(n *framework.NodeInfo, name corev1.ResourceName, asks int64, nonZero bool) (has, taken int64) {
	switch name {
	case corev1.ResourceCPU:
		if nonZero {
			return n.Allocatable.CPU, n.NonZeroCPU
		}
		return n.Allocatable.CPU, n.Requested.CPU
	case corev1.ResourceMemory:
		if nonZero {
			return n.Allocatable.Memory, n.NonZeroMemory
		}
		return n.Allocatable.Memory, n.Requested.Memory
	case corev1.ResourceEphemeralStorage:
		return n.Allocatable.Storage, n.Requested.Storage
	}
	if asks == 0 {
		return 0, 0
	}
	return n.Allocatable.Scalars[name], n.Requested.Scalars[name]
}

// requestedAmounts returns how much of each resource a Pod requests.
func requestedAmounts(p *framework.PodInfo, resources []weightedResource, nonZero bool) []int64 {
	options := helper.PodResourcesOptions{}
	if nonZero {
		options.NonMissingContainerRequests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(framework.DefaultCPURequest, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(framework.DefaultMemoryRequest, resource.DecimalSI),
		}
	}
	list := helper.PodRequests(p.Pod, options)
	out := make([]int64, len(resources))
	for i := range resources {
		q := list[resources[i].Name]
		if out[i] = quantity.Value(&q); resources[i].Name == corev1.ResourceCPU {
			out[i] = quantity.MilliValue(&q)
		}
	}
	return out
}

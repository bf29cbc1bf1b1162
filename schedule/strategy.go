package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// Strategy says which of the nodes with enough room are better. The zero value prefers empty ones, by cpu and memory.
type Strategy struct {
	Type StrategyType
	// Resources that count, each with its weight.
	Resources []WeightedResource
	// Shape is for RequestedToCapacityRatio: the score, 0 to 100, at a utilization, with straight lines between.
	Shape []Point
}

// StrategyType names a Strategy.
type StrategyType string

// The strategies.
const (
	LeastAllocated           StrategyType = "LeastAllocated"
	MostAllocated            StrategyType = "MostAllocated"
	RequestedToCapacityRatio StrategyType = "RequestedToCapacityRatio"
)

// WeightedResource is a resource with what it counts for.
type WeightedResource struct {
	Name   corev1.ResourceName
	Weight int64
}

// Point is a corner of a shape.
type Point struct{ Utilization, Score int64 }

func defaultResources() []WeightedResource {
	return []WeightedResource{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}
}

// score returns how good a node is for a pod.
func (s Strategy) score(p *PodInfo) func(*NodeInfo) int64 {
	resources := s.Resources
	if len(resources) == 0 {
		resources = defaultResources()
	}
	asks := asked(p, resources, true)
	one := leastAllocated
	ratio := s.Type == RequestedToCapacityRatio
	switch s.Type {
	case MostAllocated:
		one = mostAllocated
	case RequestedToCapacityRatio:
		one = func(taken, has int64) int64 {
			if taken > has {
				return along(s.Shape, 100)
			}
			return along(s.Shape, taken*100/has)
		}
	case LeastAllocated:
	}
	return func(n *NodeInfo) int64 {
		var sum, weights int64
		for i := range resources {
			has, taken := load(n, resources[i].Name, asks[i], true)
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
	return (has - taken) * MaxScore / has
}

func mostAllocated(taken, has int64) int64 { return min(taken, has) * MaxScore / has }

// along is the height of a line through points at x.
func along(shape []Point, x int64) int64 {
	for i, p := range shape {
		if x > p.Utilization {
			continue
		}
		if i == 0 {
			return p.Score
		}
		q := shape[i-1]
		return q.Score + (p.Score-q.Score)*(x-q.Utilization)/(p.Utilization-q.Utilization)
	}
	return shape[len(shape)-1].Score
}

// load is what a node has of a resource and what of it is taken; 0 of a resource that does not count for the pod. With
// nonZero pods without requests count for a little.
func load(n *NodeInfo, name corev1.ResourceName, asks int64, nonZero bool) (has, taken int64) {
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

// asked are the amounts a pod asks for of some resources, in their order.
func asked(p *PodInfo, resources []WeightedResource, nonZero bool) []int64 {
	options := helper.PodResourcesOptions{}
	if nonZero {
		options.NonMissingContainerRequests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(defaultCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(defaultMemory, resource.DecimalSI),
		}
	}
	list := helper.PodRequests(p.Pod, options)
	out := make([]int64, len(resources))
	for i := range resources {
		q := list[resources[i].Name]
		if out[i] = q.Value(); resources[i].Name == corev1.ResourceCPU {
			out[i] = q.MilliValue()
		}
	}
	return out
}

package fit

import (
	"math"

	"proa.dev/schedule/framework"
)

// newBalancedAllocation returns the plugin NodeResourcesBalancedAllocation, which prefers nodes on which the Pod makes
// the utilization of the resources more equal.
func newBalancedAllocation(resources []weightedResource) framework.Plugin {
	if len(resources) == 0 {
		resources = defaultResources()
	}
	return framework.Plugin{
		Name: "NodeResourcesBalancedAllocation",
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			asks := requestedAmounts(p, resources, false)
			nothing := true
			for _, n := range asks {
				nothing = nothing && n == 0
			}
			if nothing { // otherwise all such Pods would be scheduled on one node
				return framework.Skip()
			}
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Score: func(n *framework.NodeInfo) int64 {
				with := balanceScore(n, resources, asks, asks)
				without := balanceScore(n, resources, asks, nil)
				return framework.MaxScore/2 + (framework.MaxScore/2+with-without)/2
			}}
		},
	}
}

// balanceScore returns MaxScore if all resources of a node have the same utilization, and less the more they deviate.
// more are requests that are added.
func balanceScore(n *framework.NodeInfo, resources []weightedResource, asks, more []int64) int64 {
	var sum, squares, first, second float64
	var count int
	each := func(f func(part float64)) {
		for i := range resources {
			has, taken := usage(n, resources[i].Name, asks[i], false)
			if has == 0 {
				continue
			}
			if more != nil {
				taken += more[i]
			}
			f(min(float64(taken)/float64(has), 1))
		}
	}
	each(func(part float64) {
		switch count++; count {
		case 1:
			first = part
		case 2:
			second = part
		}
		sum += part
	})
	var deviation float64
	switch {
	case count == 2:
		deviation = math.Abs((first - second) / 2)
	case count > 2:
		mean := sum / float64(count)
		each(func(part float64) { squares += (part - mean) * (part - mean) })
		deviation = math.Sqrt(squares / float64(count))
	}
	return int64((1 - deviation) * float64(framework.MaxScore))
}

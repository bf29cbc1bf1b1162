package schedule

import "math"

// BalancedAllocation prefers nodes on which the pod makes the use of the resources more even.
func BalancedAllocation(resources []WeightedResource) Plugin {
	if len(resources) == 0 {
		resources = defaultResources()
	}
	return Plugin{
		Name: "NodeResourcesBalancedAllocation",
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			asks := asked(p, resources, false)
			nothing := true
			for _, n := range asks {
				nothing = nothing && n == 0
			}
			if nothing { // or all such pods would go to one node
				return Silent()
			}
			return Prepared{Reuse: WhileNode, Score: func(n *NodeInfo) int64 {
				with := balance(n, resources, asks, asks)
				without := balance(n, resources, asks, nil)
				return MaxScore/2 + (MaxScore/2+with-without)/2
			}}
		},
	}
}

// balance is MaxScore when all resources of a node are used to the same part, and less by their deviation. more is what is
// used on top.
func balance(n *NodeInfo, resources []WeightedResource, asks, more []int64) int64 {
	var sum, squares, first, second float64
	var count int
	each := func(f func(part float64)) {
		for i := range resources {
			has, taken := load(n, resources[i].Name, asks[i], false)
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
	return int64((1 - deviation) * float64(MaxScore))
}

// Package fit has the plugins about the resources of nodes: NodeResourcesFit, which requires that a node has the
// resources that a Pod requests, and NodeResourcesBalancedAllocation.
package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// fitArgs are the arguments of NodeResourcesFit.
type fitArgs struct {
	// Ignored are extended resources, and IgnoredGroups groups of them, that are not checked.
	Ignored, IgnoredGroups []string
	Strategy               strategy
	// Classes has the DeviceClasses. Nodes without an extended resource that a DeviceClass provides are left to the
	// plugin DynamicResources.
	Classes framework.Cluster
}

// newFit returns the plugin NodeResourcesFit, which rejects nodes without the resources that the Pod requests, and
// scores nodes by their utilization.
func newFit(args fitArgs) framework.Plugin {
	f := &resourceFit{args: args}
	return framework.Plugin{
		Name: "NodeResourcesFit",
		QueueingHints: []framework.QueueingHint{
			{On: framework.AssignedPod, Do: framework.Delete,
				If: func(_ *corev1.Pod, was, _ kind.Object) bool { return framework.HadNode(was) }},
			{On: framework.NodeResource, Do: framework.Add | framework.NodeAllocatable, If: f.hasMoreRoom},
			{On: framework.AssignedPod, Do: framework.PodScaleDown, If: nil},
			{On: framework.TargetPod, Do: framework.PodScaleDown, If: nil},
			{On: framework.DeviceClass, Do: framework.Add | framework.Update, If: func(pod *corev1.Pod, _, is kind.Object) bool {
				return framework.RequestsDeviceClass(pod, is.(*resourcev1.DeviceClass))
			}},
		},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Filter: f.filter(p), Score: args.Strategy.score(p)}
		},
	}
}

type resourceFit struct{ args fitArgs }

// demand is one resource that a Pod requests.
type demand struct {
	name   corev1.ResourceName
	amount int64
	device bool // a DeviceClass provides it
}

// demands returns the requests of a Pod that are checked, in the order in which reasons are given.
func (f *resourceFit) demands(p *framework.PodInfo) []demand {
	r := &p.Requests
	var out []demand
	for _, d := range []demand{{name: corev1.ResourceCPU, amount: r.CPU}, {name: corev1.ResourceMemory, amount: r.Memory},
		{name: corev1.ResourceEphemeralStorage, amount: r.Storage}} {
		if d.amount > 0 {
			out = append(out, d)
		}
	}
	fixed := len(out)
	for name, n := range r.Scalars {
		if n > 0 && !f.isIgnored(name) {
			out = append(out, demand{name, n, framework.DeviceClassFor(f.args.Classes, name) != nil})
		}
	}
	slices.SortFunc(out[fixed:], func(a, b demand) int { return strings.Compare(string(a.name), string(b.name)) })
	return out
}

func (f *resourceFit) isIgnored(name corev1.ResourceName) bool {
	if !framework.IsExtended(name) {
		return false
	}
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(f.args.Ignored, string(name)) || slices.Contains(f.args.IgnoredGroups, group)
}

// filter returns a function that compares the requests of a Pod with the free resources of a node. Rejections are made
// when they are first needed, one for each set of resources that are short.
func (f *resourceFit) filter(p *framework.PodInfo) func(*framework.NodeInfo) *framework.Rejection {
	demands := f.demands(p)
	rejections := map[shortage]*framework.Rejection{}
	return func(n *framework.NodeInfo) *framework.Rejection {
		var short shortage
		if int64(len(n.Pods))+1 > n.Allocatable.Pods {
			short.what = 1
		}
		for i := range demands {
			has, used := capacity(n, demands[i].name)
			if demands[i].amount <= has-used || has == 0 && demands[i].device {
				continue
			}
			short.what |= 2 << i
			short.unresolvable = short.unresolvable || demands[i].amount > has
		}
		if short.what == 0 {
			return nil
		}
		r := rejections[short]
		if r == nil {
			r = short.rejection(demands)
			rejections[short] = r
		}
		return r
	}
}

// capacity returns how much of a resource a node has, and how much of it is requested.
func capacity(n *framework.NodeInfo, name corev1.ResourceName) (has, used int64) {
	switch name {
	case corev1.ResourceCPU:
		return n.Allocatable.CPU, n.Requested.CPU
	case corev1.ResourceMemory:
		return n.Allocatable.Memory, n.Requested.Memory
	case corev1.ResourceEphemeralStorage:
		return n.Allocatable.Storage, n.Requested.Storage
	}
	return n.Allocatable.Scalars[name], n.Requested.Scalars[name]
}

// shortage is the set of resources that a node has too little of: the lowest bit stands for Pods, the others for the
// demands.
type shortage struct {
	what         uint64
	unresolvable bool
}

func (s shortage) rejection(demands []demand) *framework.Rejection {
	r := &framework.Rejection{Unresolvable: s.unresolvable}
	if s.what&1 != 0 {
		r.Reasons = append(r.Reasons, "Too many pods")
	}
	for i := range demands {
		if s.what&(2<<i) != 0 {
			r.Reasons = append(r.Reasons, "Insufficient "+string(demands[i].name))
		}
	}
	return r
}

// hasMoreRoom reports whether a node is new or has more of a resource that the Pod requests, and is large enough for
// the Pod if it is empty.
func (f *resourceFit) hasMoreRoom(pod *corev1.Pod, was, is kind.Object) bool {
	p := framework.NewPodInfo(pod)
	empty := &framework.NodeInfo{Allocatable: framework.NewResources(is.(*corev1.Node).Status.Allocatable)}
	if f.filter(p)(empty) != nil {
		return false
	}
	if was == nil {
		return true
	}
	before := framework.NewResources(was.(*corev1.Node).Status.Allocatable)
	if empty.Allocatable.Pods > before.Pods {
		return true
	}
	return slices.ContainsFunc(f.demands(p), func(d demand) bool { return empty.Allocatable.Of(d.name) > before.Of(d.name) })
}

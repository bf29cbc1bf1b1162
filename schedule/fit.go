package schedule

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/kinds/kind"
)

// FitArgs are the arguments of Fit.
type FitArgs struct {
	// Ignored are extended resources, and IgnoredGroups prefixes of them, that are not checked.
	Ignored, IgnoredGroups []string
	Strategy               Strategy
	// Classes has the classes of devices that stand for extended resources. Nodes that lack those are left to DynamicResources.
	Classes Cluster
}

// Fit lets a pod onto a node only if the node has what the pod asks for, and prefers nodes by how full they are.
func Fit(args FitArgs) Plugin {
	f := &fit{args: args}
	return Plugin{
		Name: "NodeResourcesFit",
		Wakes: []Wake{
			{On: AssignedPod, Do: Delete, If: func(_ *corev1.Pod, was, _ kind.Object) bool { return hadNode(was) }},
			{On: NodeResource, Do: Add | NodeAllocatable, If: f.roomier},
			{On: AssignedPod, Do: PodScaleDown, If: nil},
			{On: TargetPod, Do: PodScaleDown, If: nil},
			{On: DeviceClass, Do: Add | Update, If: func(pod *corev1.Pod, _, is kind.Object) bool { return asksFor(pod, is.(*resourcev1.DeviceClass)) }},
		},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			return Prepared{Reuse: WhileNode, Filter: f.filter(p), Score: args.Strategy.score(p)}
		},
	}
}

// hadNode says that a pod that is gone had taken room, or was promised it.
func hadNode(o kind.Object) bool {
	p, ok := o.(*corev1.Pod)
	return !ok || p.Spec.NodeName != "" || p.Status.NominatedNodeName != ""
}

type fit struct{ args FitArgs }

// demand is one thing a pod asks for.
type demand struct {
	name   corev1.ResourceName
	amount int64
	device bool // a class of devices stands for it
}

// demands are what is checked of a pod, in the order in which reasons are given.
func (f *fit) demands(p *PodInfo) []demand {
	r := &p.Requests
	var out []demand
	for _, d := range []demand{{name: corev1.ResourceCPU, amount: r.CPU}, {name: corev1.ResourceMemory, amount: r.Memory}, {name: corev1.ResourceEphemeralStorage, amount: r.Storage}} {
		if d.amount > 0 {
			out = append(out, d)
		}
	}
	fixed := len(out)
	for name, n := range r.Scalars {
		if n > 0 && !f.ignored(name) {
			out = append(out, demand{name, n, classFor(f.args.Classes, name) != nil})
		}
	}
	slices.SortFunc(out[fixed:], func(a, b demand) int { return strings.Compare(string(a.name), string(b.name)) })
	return out
}

func (f *fit) ignored(name corev1.ResourceName) bool {
	if !IsExtended(name) {
		return false
	}
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(f.args.Ignored, string(name)) || slices.Contains(f.args.IgnoredGroups, group)
}

// filter compares what the pod asks for with what is left. The verdicts are made when they are first needed, one for each
// set of things that are short.
func (f *fit) filter(p *PodInfo) func(*NodeInfo) *Verdict {
	demands := f.demands(p)
	verdicts := map[shortage]*Verdict{}
	return func(n *NodeInfo) *Verdict {
		var short shortage
		if int64(len(n.Pods))+1 > n.Allocatable.Pods {
			short.what = 1
		}
		for i := range demands {
			has, used := room(n, demands[i].name)
			if demands[i].amount <= has-used || has == 0 && demands[i].device {
				continue
			}
			short.what |= 2 << i
			short.unresolvable = short.unresolvable || demands[i].amount > has
		}
		if short.what == 0 {
			return nil
		}
		v := verdicts[short]
		if v == nil {
			v = short.verdict(demands)
			verdicts[short] = v
		}
		return v
	}
}

// room is what a node has of a resource, and what of it is taken.
func room(n *NodeInfo, name corev1.ResourceName) (has, used int64) {
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

// shortage is what a node has too little of: the lowest bit is pods, then the demands.
type shortage struct {
	what         uint64
	unresolvable bool
}

func (s shortage) verdict(demands []demand) *Verdict {
	v := &Verdict{Unresolvable: s.unresolvable}
	if s.what&1 != 0 {
		v.Reasons = append(v.Reasons, "Too many pods")
	}
	for i := range demands {
		if s.what&(2<<i) != 0 {
			v.Reasons = append(v.Reasons, "Insufficient "+string(demands[i].name))
		}
	}
	return v
}

// roomier says that a node is new or has got more of something the pod asks for, and is large enough when empty.
func (f *fit) roomier(pod *corev1.Pod, was, is kind.Object) bool {
	p := NewPodInfo(pod)
	empty := &NodeInfo{Allocatable: NewResources(is.(*corev1.Node).Status.Allocatable)}
	if f.filter(p)(empty) != nil {
		return false
	}
	if was == nil {
		return true
	}
	before := NewResources(was.(*corev1.Node).Status.Allocatable)
	if empty.Allocatable.Pods > before.Pods {
		return true
	}
	return slices.ContainsFunc(f.demands(p), func(d demand) bool { return empty.Allocatable.Of(d.name) > before.Of(d.name) })
}

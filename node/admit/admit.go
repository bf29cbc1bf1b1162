// Package admit decides whether a node takes a Pod that was bound to it. The scheduler has decided that once, but it may have
// been wrong, or somebody else did the binding: two Pods may want the same port, the node may have got smaller, or lack what
// the Pod needs. A Pod that the system needs pushes others out instead. All of it is pure, but for a look at the machine.
package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/placement"
	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
)

// Node is what Pods are admitted to.
type Node struct {
	// Node has the labels, taints and what is allocatable.
	Node *corev1.Node
	// Pressure are the conditions under which the node runs short of something.
	Pressure []corev1.NodeConditionType
	Sysctls  Sysctls
	// AppArmor says why profiles cannot be enforced here; nil if they can.
	AppArmor error
	// Stopping says that the machine is being shut down.
	Stopping bool
}

// Rejection is why a node does not take a Pod, as the Pod's status shows it.
type Rejection struct{ Reason, Message string }

// What is said of a Pod that has to go for another one.
const (
	PreemptReason    = "Preempting"
	PreemptMessage   = "Preempted in order to admit critical pod"
	PreemptCondition = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Admit says whether a node takes a Pod beside others. If it does, it may have to end some of the others first; that is only
// done for Pods that the system needs.
func Admit(p *corev1.Pod, others []*corev1.Pod, n Node) (victims []*corev1.Pod, no *Rejection) {
	others = slices.DeleteFunc(slices.Clone(others), func(o *corev1.Pod) bool { return o.UID == p.UID })
	if n.Node == nil {
		return nil, &Rejection{"InvalidNodeInfo", "Kubelet cannot get node info."}
	}
	if no := Early(p, n); no != nil {
		return nil, no
	}
	for _, check := range []func(*corev1.Pod, Node) *Rejection{operatingSystem, groupsPolicy} {
		if no := check(p, n); no != nil {
			return nil, no
		}
	}
	victims, no = room(p, others, n)
	if no == nil {
		no = appArmor(p, n)
	}
	if no == nil && n.Stopping {
		no = &Rejection{"NodeShutdown", "Pod was rejected as the node is shutting down."}
	}
	if no != nil {
		return nil, no
	}
	return victims, nil
}

// Early is the part of Admit that comes before a Pod is given devices and processors of its own.
func Early(p *corev1.Pod, n Node) *Rejection {
	if no := evicted(p, n); no != nil {
		return no
	}
	return sysctls(p, n)
}

// evicted refuses Pods that would be evicted at once. Memory alone is only short for those who asked for none.
func evicted(p *corev1.Pod, n Node) *Rejection {
	if len(n.Pressure) == 0 || fact.Critical(p) {
		return nil
	}
	if len(n.Pressure) == 1 && n.Pressure[0] == corev1.NodeMemoryPressure {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if cgroup.Class(p) != corev1.PodQOSBestEffort || tolerates(p, taint) {
			return nil
		}
	}
	return &Rejection{"Evicted", fmt.Sprintf("The node had condition: %v. ", n.Pressure)}
}

func tolerates(p *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return placement.Tolerates(&t, taint) })
}

func sysctls(p *corev1.Pod, n Node) *Rejection {
	if err := n.Sysctls.check(p); err != nil {
		return &Rejection{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %v", err)}
	}
	return nil
}

func operatingSystem(p *corev1.Pod, _ Node) *Rejection {
	const mine = "linux"
	if os, ok := p.Labels[corev1.LabelOSStable]; ok && os != mine {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != mine {
		return &Rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

func groupsPolicy(p *corev1.Pod, n Node) *Rejection {
	s := p.Spec.SecurityContext
	if s == nil || s.SupplementalGroupsPolicy == nil || *s.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := n.Node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Rejection{"SupplementalGroupsPolicyNotSupported", fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", corev1.SupplementalGroupsPolicyStrict)}
}

// appArmor refuses a Pod that names profiles where none can be enforced. Whoever runs already is left alone.
func appArmor(p *corev1.Pod, n Node) *Rejection {
	if p.Status.Phase != "" && p.Status.Phase != corev1.PodPending || !confined(p) {
		return nil
	}
	err := n.AppArmor
	if err == nil {
		err = emptyProfile(p)
	}
	if err == nil {
		return nil
	}
	return &Rejection{"AppArmor", fmt.Sprintf("Cannot enforce AppArmor: %v", err)}
}

// profiles are all profiles that a Pod names.
func profiles(p *corev1.Pod) (out []*corev1.AppArmorProfile) {
	if s := p.Spec.SecurityContext; s != nil && s.AppArmorProfile != nil {
		out = append(out, s.AppArmorProfile)
	}
	add := func(s *corev1.SecurityContext) {
		if s != nil && s.AppArmorProfile != nil {
			out = append(out, s.AppArmorProfile)
		}
	}
	for i := range p.Spec.InitContainers {
		add(p.Spec.InitContainers[i].SecurityContext)
	}
	for i := range p.Spec.Containers {
		add(p.Spec.Containers[i].SecurityContext)
	}
	for i := range p.Spec.EphemeralContainers {
		add(p.Spec.EphemeralContainers[i].SecurityContext)
	}
	// Static Pods may still name them in annotations.
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if !strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			continue
		}
		profile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		text := p.Annotations[key]
		if text == corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			profile.Type = corev1.AppArmorProfileTypeUnconfined
		} else if name, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
			profile.Type, profile.LocalhostProfile = corev1.AppArmorProfileTypeLocalhost, &name
		}
		out = append(out, profile)
	}
	return out
}

func confined(p *corev1.Pod) bool {
	return slices.ContainsFunc(profiles(p), func(a *corev1.AppArmorProfile) bool { return a.Type != corev1.AppArmorProfileTypeUnconfined })
}

func emptyProfile(p *corev1.Pod) error {
	for _, a := range profiles(p) {
		if a.Type == corev1.AppArmorProfileTypeLocalhost && (a.LocalhostProfile == nil || strings.TrimSpace(*a.LocalhostProfile) == "") {
			return fmt.Errorf("invalid empty AppArmor profile name: %q", a)
		}
	}
	return nil
}

// room looks for a place for a Pod, and for Pods that must go for it.
func room(p *corev1.Pod, others []*corev1.Pod, n Node) ([]*corev1.Pod, *Rejection) {
	lacks, misfits := Lacks(p, others, n.Node.Status.Allocatable), misfits(p, others, n)
	if !fact.Critical(p) {
		return nil, first(lacks, misfits)
	}
	if len(misfits) > 0 || len(lacks) == 0 {
		return nil, first(nil, misfits)
	}
	victims, err := preempt(p, others, lacks)
	if err != nil {
		return nil, &Rejection{"UnexpectedAdmissionError", fmt.Sprintf("Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: %v", err)}
	}
	return victims, nil
}

// Resize says whether a node has what a Pod asks for that runs here already. Nobody has to go for it: it can wait.
func Resize(p *corev1.Pod, others []*corev1.Pod, n Node) *Rejection {
	others = slices.DeleteFunc(slices.Clone(others), func(o *corev1.Pod) bool { return o.UID == p.UID })
	no := evicted(p, n)
	if no == nil {
		no = first(Lacks(p, others, n.Node.Status.Allocatable), misfits(p, others, n))
	}
	if no == nil {
		return nil
	}
	return &Rejection{corev1.PodReasonDeferred, no.Message}
}

// first is the first reason of all; nil if there is none.
func first(lacks []Lack, misfits []Rejection) *Rejection {
	switch {
	case len(lacks) > 0:
		return &Rejection{"OutOf" + string(lacks[0].Resource), lacks[0].String()}
	case len(misfits) > 0:
		return &misfits[0]
	}
	return nil
}

// misfits are the reasons why a Pod does not belong on a node, however much room there is.
func misfits(p *corev1.Pod, others []*corev1.Pod, n Node) (out []Rejection) {
	failed := func(name, why string) {
		out = append(out, Rejection{name, fmt.Sprintf("Predicate %s failed: %s", name, why)})
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n.Node); !ok || err != nil {
		failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	if p.Spec.NodeName != "" && p.Spec.NodeName != n.Node.Name {
		failed("NodeName", "node(s) didn't match the requested node name")
	}
	if clash(p, others) {
		failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if !fact.Static(p) && slices.ContainsFunc(n.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && !tolerates(p, &t) }) {
		failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return out
}

// Lack is a resource that a node has too little of. CPU is in thousandths.
type Lack struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

func (l Lack) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", l.Resource, l.Requested, l.Used, l.Capacity)
}

// Lacks are the resources that a node has too little of for a Pod beside others, the usual ones first. What the node does
// not know at all is somebody else's business.
func Lacks(p *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) (out []Lack) {
	capacity := allocatable.Pods().Value()
	if int64(len(others))+1 > capacity {
		out = append(out, Lack{corev1.ResourcePods, 1, int64(len(others)), capacity})
	}
	want := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	used := map[corev1.ResourceName]int64{}
	for _, o := range others {
		for r := range resourcehelper.PodRequests(o, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
			used[r] += request(o, r, true)
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(want), byRank) {
		has, known := allocatable[r]
		requested := request(p, r, false)
		if requested == 0 || !known && strings.Contains(string(r), "/") {
			continue
		}
		capacity := has.Value()
		if r == corev1.ResourceCPU {
			capacity = has.MilliValue()
		}
		if requested > capacity-used[r] {
			out = append(out, Lack{r, requested, used[r], capacity})
		}
	}
	return out
}

// byRank puts the resources first that every node has.
func byRank(a, b corev1.ResourceName) int {
	usual := []corev1.ResourceName{corev1.ResourceEphemeralStorage, corev1.ResourceMemory, corev1.ResourceCPU}
	return cmp.Or(slices.Index(usual, b)-slices.Index(usual, a), cmp.Compare(a, b))
}

// request is what a Pod asks for: thousandths of CPUs, or units of anything else. running counts what it has, if that is more.
func request(p *corev1.Pod, r corev1.ResourceName, running bool) int64 {
	if r == corev1.ResourcePods {
		return 1
	}
	q := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: running})[r]
	if r == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

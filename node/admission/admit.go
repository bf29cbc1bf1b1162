// Package admission decides whether a node accepts a Pod that was bound to it. The scheduler has decided that once, but
// it may have been wrong, or the Pod was bound otherwise: two Pods may want the same host port, the node may have
// become smaller, or lack what the Pod needs. A critical Pod preempts others instead. All of it is pure, except for
// reading properties of the machine.
package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/lib/placement"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
)

// Node is the node that Pods are admitted to.
type Node struct {
	// Node has the labels, taints and allocatable resources.
	Node *corev1.Node
	// Pressure are the pressure conditions of the node.
	Pressure []corev1.NodeConditionType
	Sysctls  Sysctls
	// AppArmor is why AppArmor profiles cannot be enforced here; nil if they can.
	AppArmor error
	// Stopping reports that the machine is shutting down.
	Stopping bool
}

// Rejection is why a node rejects a Pod, as the Pod's status shows it.
type Rejection struct{ Reason, Message string }

// The reason and messages of a preempted Pod.
const (
	PreemptReason    = "Preempting"
	PreemptMessage   = "Preempted in order to admit critical pod"
	PreemptCondition = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Admit decides whether a node accepts a Pod beside others. If it does, some of the others may have to be preempted
// first; that is only done for critical Pods.
func Admit(p *corev1.Pod, others []*corev1.Pod, n Node) (victims []*corev1.Pod, no *Rejection) {
	others = slices.DeleteFunc(slices.Clone(others), func(o *corev1.Pod) bool { return o.UID == p.UID })
	if n.Node == nil {
		return nil, &Rejection{"InvalidNodeInfo", "Kubelet cannot get node info."}
	}
	if no := AdmitBeforeAllocation(p, n); no != nil {
		return nil, no
	}
	for _, check := range []func(*corev1.Pod, Node) *Rejection{operatingSystem, groupsPolicy} {
		if no := check(p, n); no != nil {
			return nil, no
		}
	}
	victims, no = checkResources(p, others, n)
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

// AdmitBeforeAllocation is the part of Admit that comes before exclusive resources are allocated.
func AdmitBeforeAllocation(p *corev1.Pod, n Node) *Rejection {
	if no := rejectUnderPressure(p, n); no != nil {
		return no
	}
	return sysctls(p, n)
}

// rejectUnderPressure rejects Pods that would be evicted at once. Under memory pressure alone that holds only for BestEffort Pods.
func rejectUnderPressure(p *corev1.Pod, n Node) *Rejection {
	if len(n.Pressure) == 0 || fact.Critical(p) {
		return nil
	}
	if len(n.Pressure) == 1 && n.Pressure[0] == corev1.NodeMemoryPressure {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if cgroup.QOSClass(p) != corev1.PodQOSBestEffort || tolerates(p, taint) {
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
	return &Rejection{"SupplementalGroupsPolicyNotSupported",
		fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", corev1.SupplementalGroupsPolicyStrict)}
}

// appArmor rejects a Pod with AppArmor profiles if they cannot be enforced. Pods that run already are left alone.
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

// profiles returns all AppArmor profiles that a Pod names.
func profiles(p *corev1.Pod) (out []*corev1.AppArmorProfile) {
	if s := p.Spec.SecurityContext; s != nil && s.AppArmorProfile != nil {
		out = append(out, s.AppArmorProfile)
	}
	add := func(s *corev1.SecurityContext) {
		if s != nil && s.AppArmorProfile != nil {
			out = append(out, s.AppArmorProfile)
		}
	}
	for c := range fact.AllContainers(p) {
		add(c.SecurityContext)
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

// checkResources checks the resources for a Pod, and chooses the Pods to preempt for it.
func checkResources(p *corev1.Pod, others []*corev1.Pod, n Node) ([]*corev1.Pod, *Rejection) {
	lacks, misfits := MissingResources(p, others, n.Node.Status.Allocatable), mismatches(p, others, n)
	if !fact.Critical(p) {
		return nil, firstRejection(lacks, misfits)
	}
	if len(misfits) > 0 || len(lacks) == 0 {
		return nil, firstRejection(nil, misfits)
	}
	victims, err := preempt(p, others, lacks)
	if err != nil {
		return nil, &Rejection{"UnexpectedAdmissionError", fmt.Sprintf("Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: %v", err)}
	}
	return victims, nil
}

// Resize decides whether a node has the resources that a running Pod asks for. No Pod is preempted for it: the resize
// can be deferred.
func Resize(p *corev1.Pod, others []*corev1.Pod, n Node) *Rejection {
	others = slices.DeleteFunc(slices.Clone(others), func(o *corev1.Pod) bool { return o.UID == p.UID })
	no := rejectUnderPressure(p, n)
	if no == nil {
		no = firstRejection(MissingResources(p, others, n.Node.Status.Allocatable), mismatches(p, others, n))
	}
	if no == nil {
		return nil
	}
	return &Rejection{corev1.PodReasonDeferred, no.Message}
}

// firstRejection returns the first reason of all; nil if there is none.
func firstRejection(lacks []MissingResource, misfits []Rejection) *Rejection {
	switch {
	case len(lacks) > 0:
		return &Rejection{"OutOf" + string(lacks[0].Resource), lacks[0].String()}
	case len(misfits) > 0:
		return &misfits[0]
	}
	return nil
}

// mismatches returns the reasons other than resources why a Pod does not belong on a node.
func mismatches(p *corev1.Pod, others []*corev1.Pod, n Node) (out []Rejection) {
	failed := func(name, why string) {
		out = append(out, Rejection{name, fmt.Sprintf("Predicate %s failed: %s", name, why)})
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n.Node); !ok || err != nil {
		failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	if p.Spec.NodeName != "" && p.Spec.NodeName != n.Node.Name {
		failed("NodeName", "node(s) didn't match the requested node name")
	}
	if portConflict(p, others) {
		failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if !fact.Static(p) && slices.ContainsFunc(n.Node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && !tolerates(p, &t) }) {
		failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return out
}

// MissingResource is a resource of which a node has too little. CPU is in thousandths.
type MissingResource struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

func (l MissingResource) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", l.Resource, l.Requested, l.Used, l.Capacity)
}

// MissingResources returns the resources of which a node has too little for a Pod beside others, common ones first. Extended
// resources that the node does not know are ignored.
func MissingResources(p *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) (out []MissingResource) {
	capacity := allocatable.Pods().Value()
	if int64(len(others))+1 > capacity {
		out = append(out, MissingResource{corev1.ResourcePods, 1, int64(len(others)), capacity})
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
		capacity := quantity.Value(&has)
		if r == corev1.ResourceCPU {
			capacity = quantity.MilliValue(&has)
		}
		if requested > capacity-used[r] {
			out = append(out, MissingResource{r, requested, used[r], capacity})
		}
	}
	return out
}

// byRank sorts the resources first that every node has.
func byRank(a, b corev1.ResourceName) int {
	usual := []corev1.ResourceName{corev1.ResourceEphemeralStorage, corev1.ResourceMemory, corev1.ResourceCPU}
	return cmp.Or(slices.Index(usual, b)-slices.Index(usual, a), cmp.Compare(a, b))
}

// request returns what a Pod requests: thousandths of CPUs, or units of other resources. With running, what it has
// counts if that is more.
func request(p *corev1.Pod, r corev1.ResourceName, running bool) int64 {
	if r == corev1.ResourcePods {
		return 1
	}
	q := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: running})[r]
	if r == corev1.ResourceCPU {
		return quantity.MilliValue(&q)
	}
	return quantity.Value(&q)
}

// Package devices has the plugin DynamicResources, which allocates devices for ResourceClaims and for extended
// resources that DeviceClasses provide.
package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/deviceallocator"
	"proa.dev/schedule/framework"
)

// arguments are the arguments of the plugin DynamicResources.
type arguments struct {
	// BindingTimeout is how long devices may take to become ready.
	BindingTimeout time.Duration
}

// newPlugin returns the plugin DynamicResources, which rejects nodes from which the devices of the Pod's claims cannot
// be used, and allocates devices for claims without devices and for extended resources that a DeviceClass provides.
func newPlugin(args arguments, deps framework.Deps) framework.Plugin {
	d := &dynamicResources{
		args: args, deps: deps, pending: newPendingAllocations(),
		unavailable:    framework.Unresolvable("resourceclaim not available on the node"),
		cannotAllocate: framework.Unresolvable("cannot allocate all claims"),
		staleClaim:     framework.Unresolvable("cannot schedule extended resource claim"),
	}
	return framework.Plugin{
		Name:  pluginName,
		Reads: []schema.GroupResource{gr.ResourceClaims, gr.ResourceSlices, gr.DeviceClasses, framework.DeviceTaintRules()},
		QueueingHints: []framework.QueueingHint{
			{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel | framework.NodeAllocatable},
			{On: framework.ResourceClaim, Do: framework.Add | framework.Update | framework.Delete, If: d.claimChangeHelps},
			{On: framework.TargetPod, Do: framework.PodClaims,
				If: func(pod *corev1.Pod, _, _ kind.Object) bool { return d.preEnqueue(pod) == nil }},
			{On: framework.DeviceClass, Do: framework.Add | framework.Update},
			{On: framework.ResourceSlice, Do: framework.Add | framework.Update},
			{On: framework.DeviceTaintRule, Do: framework.Update | framework.Delete},
		},
		PreEnqueue: d.preEnqueue,
		Prepare:    d.prepare,
		PostFilter: d.postFilter,
	}
}

const pluginName = "DynamicResources"

type dynamicResources struct {
	args                                    arguments
	deps                                    framework.Deps
	pending                                 *pendingAllocations
	unavailable, cannotAllocate, staleClaim *framework.Rejection
}

// podClaims returns the ResourceClaims of a Pod, or why they cannot be used yet.
func podClaims(c framework.Cluster, pod *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var out []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, own, err := podClaimName(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil { // the Pod needs no claim
			continue
		}
		o, found := c.Get(gr.ResourceClaims, pod.Namespace, *name)
		if !found {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaim"}, *name)
		}
		claim := o.(*resourcev1.ResourceClaim)
		if claim.DeletionTimestamp != nil {
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if own && !metav1.IsControlledBy(claim, pod) {
			return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", claim.Namespace, claim.Name,
				pod.Namespace, pod.Name)
		}
		out = append(out, claim)
	}
	return out, nil
}

// podClaimName returns the name of a claim of a Pod; nil if the Pod needs none. own reports that it was created from a
// template.
func podClaimName(pod *corev1.Pod, r *corev1.PodResourceClaim) (name *string, own bool, err error) {
	switch {
	case r.ResourceClaimName != nil:
		return r.ResourceClaimName, false, nil
	case r.ResourceClaimTemplateName != nil:
		for _, s := range pod.Status.ResourceClaimStatuses {
			if s.Name == r.Name {
				return s.ResourceClaimName, true, nil
			}
		}
		return nil, false, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, pod.Namespace, pod.Name)
	}
	return nil, false, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, pod.Namespace, pod.Name, r.Name)
}

// preEnqueue keeps a Pod out of the queue until its claims exist.
func (d *dynamicResources) preEnqueue(pod *corev1.Pod) *framework.Rejection {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	if _, err := podClaims(d.deps.Views, pod); err != nil {
		return framework.Unresolvable(err.Error())
	}
	return nil
}

// claimChangeHelps reports whether a change of a claim has freed devices, or is a change of a claim of the Pod.
func (d *dynamicResources) claimChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	before, _ := was.(*resourcev1.ResourceClaim)
	after, _ := is.(*resourcev1.ResourceClaim)
	freed := before != nil && before.Status.Allocation != nil && (after == nil || after.Status.Allocation == nil)
	if after == nil {
		return freed || before != nil && podOfExtendedClaim(before) == pod.UID
	}
	claims, err := podClaims(d.deps.Views, pod)
	if err != nil || freed {
		return err == nil
	}
	for _, c := range claims {
		if c.UID == after.UID {
			return before == nil || !equality.Semantic.DeepEqual(before.Status, after.Status)
		}
	}
	return false
}

// podDevices is the state of one Pod with claims.
type podDevices struct {
	*dynamicResources
	pod            *corev1.Pod
	allocated      []allocatedClaim            // claims with devices
	unallocated    []*resourcev1.ResourceClaim // claims without devices
	extended       *extendedRequests           // nil if there are none
	allocator      *deviceallocator.Allocator
	allocations    map[string]nodeAllocation // by node
	reserved       nodeAllocation            // the allocation on the chosen node
	createdClaim   *resourcev1.ResourceClaim
	reservedClaims []*resourcev1.ResourceClaim // claims that were reserved for the Pod by preBind
}

// nodeAllocation has the allocations on a node: one for each unallocated claim, followed by the one for extended
// resources if extended is not nil.
type nodeAllocation struct {
	results  []resourcev1.AllocationResult
	extended *extendedClaim
}

// allocatedClaim is a claim with devices.
type allocatedClaim struct {
	*resourcev1.ResourceClaim
	nodes  *nodeaffinity.NodeSelector // nil if the devices are reachable from all nodes
	failed bool                       // its devices have failed to become ready
}

// isReachableFrom reports whether the devices can be used on a node.
func (c *allocatedClaim) isReachableFrom(n *corev1.Node) bool {
	return !c.failed && (c.nodes == nil || c.nodes.Match(n))
}

func (d *dynamicResources) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	extended := extendedRequestsOf(s.Cluster, p)
	if len(p.Pod.Spec.ResourceClaims) == 0 && extended == nil {
		return framework.Skip()
	}
	claims, err := podClaims(s.Cluster, p.Pod)
	if err != nil {
		return framework.Prepared{Reject: framework.Unresolvable(err.Error())}
	}
	w := &podDevices{dynamicResources: d, pod: p.Pod, extended: extended, allocations: map[string]nodeAllocation{}}
	for _, c := range claims {
		if r := w.classify(s.Cluster, c); r != nil {
			return framework.Prepared{Reject: r}
		}
	}
	if len(w.unallocated) > 0 || extended != nil {
		w.allocator = deviceallocator.New(d.allocatorInput(s.Cluster))
	}
	out := framework.Prepared{
		Update: func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true }, Filter: w.filter,
		Reserve: w.reserve, Unreserve: func(string) { w.unreserve() }, PreBind: w.preBind,
	}
	if w.hasAlternatives() {
		out.Score = func(n *framework.NodeInfo) int64 { return w.score(n.Name()) }
		out.Normalize = func(_ []*framework.NodeInfo, scores []int64) { framework.NormalizeScores(scores, false) }
	}
	return out
}

// classify adds a claim to the allocated or the unallocated ones, or returns why the Pod cannot be scheduled.
func (w *podDevices) classify(c framework.Cluster, claim *resourcev1.ResourceClaim) *framework.Rejection {
	if a := claim.Status.Allocation; a != nil {
		at := allocatedClaim{ResourceClaim: claim, failed: w.hasFailed(claim)}
		if a.NodeSelector != nil {
			var err error
			if at.nodes, err = nodeaffinity.NewNodeSelector(a.NodeSelector); err != nil {
				return framework.Failed(err)
			}
		}
		w.allocated = append(w.allocated, at)
		return nil
	}
	if w.pending.has(claim.UID) {
		return framework.Unresolvable(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
	}
	exists := func(class, request string) *framework.Rejection {
		if _, found := c.Get(gr.DeviceClasses, "", class); !found {
			return framework.Unresolvable(fmt.Sprintf("request %s: device class %s does not exist", request, class))
		}
		return nil
	}
	for _, r := range claim.Spec.Devices.Requests {
		switch {
		case r.Exactly != nil:
			if rejection := exists(r.Exactly.DeviceClassName, r.Name); rejection != nil {
				return rejection
			}
		case len(r.FirstAvailable) > 0:
			for _, s := range r.FirstAvailable {
				if rejection := exists(s.DeviceClassName, r.Name+"/"+s.Name); rejection != nil {
					return rejection
				}
			}
		default:
			return framework.Unresolvable(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type", claim.Namespace, claim.Name,
				r.Name))
		}
	}
	w.unallocated = append(w.unallocated, claim)
	return nil
}

// allocatorInput returns the state of all devices: the existing ones, and which of them are allocated or about to be.
func (d *dynamicResources) allocatorInput(c framework.Cluster) deviceallocator.Input {
	in := deviceallocator.Input{
		Select: d.deps.Select, NewID: uuid.NewUUID,
		Class: func(name string) *resourcev1.DeviceClass {
			o, found := c.Get(gr.DeviceClasses, "", name)
			if !found {
				return nil
			}
			return o.(*resourcev1.DeviceClass)
		},
	}
	for o := range c.List(gr.ResourceSlices, "") {
		in.Slices = append(in.Slices, o.(*resourcev1.ResourceSlice))
	}
	for o := range c.List(framework.DeviceTaintRules(), "") {
		in.Rules = append(in.Rules, o.(*resourcev1.DeviceTaintRule))
	}
	there := map[types.UID]bool{}
	for o := range c.List(gr.ResourceClaims, "") {
		claim := o.(*resourcev1.ResourceClaim)
		if there[claim.UID] = true; claim.Status.Allocation != nil {
			in.Used.Add(claim.Status.Allocation)
			d.pending.remove(claim.UID)
			d.pending.remove(podOfExtendedClaim(claim))
		}
	}
	d.pending.removeObsolete(func(uid types.UID) bool { return there[uid] }, func(pod *corev1.Pod) bool {
		o, found := c.Get(gr.Pods, pod.Namespace, pod.Name)
		return found && o.GetUID() == pod.UID && !framework.HasEnded(o.(*corev1.Pod))
	})
	d.pending.each(in.Used.Add)
	return in
}

func (w *podDevices) filter(n *framework.NodeInfo) *framework.Rejection {
	for i := range w.allocated {
		if !w.allocated[i].isReachableFrom(n.Node) {
			return w.unavailable
		}
	}
	claims, found := w.unallocated, nodeAllocation{}
	if w.extended != nil {
		if w.extended.staleClaim != nil {
			return w.staleClaim
		}
		if found.extended = w.extended.claimFor(n); found.extended != nil {
			claims = append(slices.Clip(claims), found.extended.claim)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	results, err := w.allocator.Allocate(n.Node, claims)
	switch {
	case errors.Is(err, deviceallocator.ErrUnavailable) || errors.Is(err, deviceallocator.ErrNoSelector):
		return framework.Unresolvable(err.Error())
	case err != nil:
		return framework.Failed(err)
	case results == nil:
		return w.cannotAllocate
	}
	found.results = results
	w.allocations[n.Name()] = found
	return nil
}

// hasAlternatives reports whether a request has several alternatives, which are preferred in their order.
func (w *podDevices) hasAlternatives() bool {
	for _, c := range w.unallocated {
		for _, r := range c.Spec.Devices.Requests {
			if len(r.FirstAvailable) > 0 {
				return true
			}
		}
	}
	return false
}

// score returns a score that is the higher the earlier the alternatives are that a node can satisfy.
func (w *podDevices) score(node string) (sum int64) {
	found := w.allocations[node]
	for i, claim := range w.unallocated {
		given := map[string]bool{}
		for _, r := range found.results[i].Devices.Results {
			given[r.Request] = true
		}
		for _, r := range claim.Spec.Devices.Requests {
			for nth, s := range r.FirstAvailable {
				if given[r.Name+"/"+s.Name] {
					sum += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - nth)
				}
			}
		}
	}
	return sum
}

// New returns the plugin DynamicResources.
func New(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.DynamicResourcesArgs // filterTimeout is validated but not used: the allocator bounds its steps instead
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	var errs field.ErrorList
	if args.FilterTimeout != nil && args.FilterTimeout.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("filterTimeout"), args.FilterTimeout, "must be zero or positive"))
	}
	if args.BindingTimeout != nil && args.BindingTimeout.Duration < time.Second {
		errs = append(errs, field.Invalid(field.NewPath("bindingTimeout"), args.BindingTimeout, "must be at least 1 second"))
	}
	if err := errs.ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	return newPlugin(arguments{BindingTimeout: ptr.Deref(args.BindingTimeout, metav1.Duration{Duration: 10 * time.Minute}).Duration},
		deps), nil
}

package schedule

import (
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
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/schedule/device"
)

// DeviceArgs are the arguments of DynamicResources.
type DeviceArgs struct {
	// BindingTimeout is how long devices may take to become ready.
	BindingTimeout time.Duration
}

// DynamicResources lets a pod only where the devices of its claims are, and allocates devices for claims that have none, and
// for extended resources that stand for devices.
func DynamicResources(args DeviceArgs, deps Deps) Plugin {
	d := &dynamicResources{
		args: args, deps: deps, flying: newFlying(),
		elsewhere: NotEver("resourceclaim not available on the node"), nothing: NotEver("cannot allocate all claims"),
		again: NotEver("cannot schedule extended resource claim"),
	}
	return Plugin{
		Name:  draName,
		Reads: []schema.GroupResource{gr.ResourceClaims, gr.ResourceSlices, gr.DeviceClasses, taintRules()},
		Wakes: []Wake{
			{On: NodeResource, Do: Add | NodeLabel | NodeAllocatable},
			{On: ResourceClaim, Do: Add | Update | Delete, If: d.claimMatters},
			{On: TargetPod, Do: PodClaims, If: func(pod *corev1.Pod, _, _ kind.Object) bool { return d.gate(pod) == nil }},
			{On: DeviceClass, Do: Add | Update},
			{On: ResourceSlice, Do: Add | Update},
			{On: DeviceTaintRule, Do: Update | Delete},
		},
		Gate:    d.gate,
		Prepare: d.prepare,
		Rescue:  d.rescue,
	}
}

const draName = "DynamicResources"

func taintRules() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}
}

type dynamicResources struct {
	args                      DeviceArgs
	deps                      Deps
	flying                    *flying
	elsewhere, nothing, again *Verdict
}

// podClaims are the claims of a pod, or why it cannot have them yet.
func podClaims(c Cluster, pod *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var out []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, own, err := podClaimName(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil { // it needs none
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
			return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
		}
		out = append(out, claim)
	}
	return out, nil
}

// podClaimName is the name of a claim. own says that it was made for the pod from a template.
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

// gate keeps a pod out of the queue until its claims are there.
func (d *dynamicResources) gate(pod *corev1.Pod) *Verdict {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	if _, err := podClaims(d.deps.Views, pod); err != nil {
		return NotEver(err.Error())
	}
	return nil
}

// claimMatters says that devices got free, or that a claim of the pod has changed.
func (d *dynamicResources) claimMatters(pod *corev1.Pod, was, is kind.Object) bool {
	before, _ := was.(*resourcev1.ResourceClaim)
	after, _ := is.(*resourcev1.ResourceClaim)
	freed := before != nil && before.Status.Allocation != nil && (after == nil || after.Status.Allocation == nil)
	if after == nil {
		return freed || before != nil && extendedFor(before) == pod.UID
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

// devicesOf is a pod with claims, on its way.
type devicesOf struct {
	*dynamicResources
	pod      *corev1.Pod
	settled  []settledClaim              // that have devices
	open     []*resourcev1.ResourceClaim // that have none
	extended *extended                   // nil if it asks for nothing of the kind
	alloc    *device.Allocator
	found    map[string]finding // by node
	reserved finding            // of the node that was chosen
	made     *resourcev1.ResourceClaim
	wrote    []*resourcev1.ResourceClaim // that are reserved for the pod, on the way to its node
}

// finding are the devices of a node, for each of the claims that have none, and at last for extended resources.
type finding struct {
	results  []resourcev1.AllocationResult
	extended *extendedClaim
}

type settledClaim struct {
	*resourcev1.ResourceClaim
	from *nodeaffinity.NodeSelector // nil is everywhere
	lost bool                       // its devices do not become ready
}

// reaches says that the devices can be used on a node.
func (c *settledClaim) reaches(n *corev1.Node) bool {
	return !c.lost && (c.from == nil || c.from.Match(n))
}

func (d *dynamicResources) prepare(s *Snapshot, p *PodInfo) Prepared {
	extended := extendedOf(s.Cluster, p)
	if len(p.Pod.Spec.ResourceClaims) == 0 && extended == nil {
		return Silent()
	}
	claims, err := podClaims(s.Cluster, p.Pod)
	if err != nil {
		return Prepared{Reject: NotEver(err.Error())}
	}
	w := &devicesOf{dynamicResources: d, pod: p.Pod, extended: extended, found: map[string]finding{}}
	for _, c := range claims {
		if v := w.sort(s.Cluster, c); v != nil {
			return Prepared{Reject: v}
		}
	}
	if len(w.open) > 0 || extended != nil {
		w.alloc = device.New(d.input(s.Cluster))
	}
	out := Prepared{
		Update: func(*NodeInfo, *PodInfo, int) bool { return true }, Filter: w.filter,
		Reserve: w.reserve, Unreserve: func(string) { w.unreserve() }, PreBind: w.preBind,
	}
	if w.hasChoices() {
		out.Score = func(n *NodeInfo) int64 { return w.score(n.Name()) }
		out.Normalize = func(_ []*NodeInfo, scores []int64) { spread(scores, false) }
	}
	return out
}

// sort puts a claim to those that have devices, or to those that want some.
func (w *devicesOf) sort(c Cluster, claim *resourcev1.ResourceClaim) *Verdict {
	if a := claim.Status.Allocation; a != nil {
		at := settledClaim{ResourceClaim: claim, lost: w.hopeless(claim)}
		if a.NodeSelector != nil {
			var err error
			if at.from, err = nodeaffinity.NewNodeSelector(a.NodeSelector); err != nil {
				return Failed(err)
			}
		}
		w.settled = append(w.settled, at)
		return nil
	}
	if w.flying.has(claim.UID) {
		return NotEver(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
	}
	exists := func(class, request string) *Verdict {
		if _, found := c.Get(gr.DeviceClasses, "", class); !found {
			return NotEver(fmt.Sprintf("request %s: device class %s does not exist", request, class))
		}
		return nil
	}
	for _, r := range claim.Spec.Devices.Requests {
		switch {
		case r.Exactly != nil:
			if v := exists(r.Exactly.DeviceClassName, r.Name); v != nil {
				return v
			}
		case len(r.FirstAvailable) > 0:
			for _, s := range r.FirstAvailable {
				if v := exists(s.DeviceClassName, r.Name+"/"+s.Name); v != nil {
					return v
				}
			}
		default:
			return NotEver(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type", claim.Namespace, claim.Name, r.Name))
		}
	}
	w.open = append(w.open, claim)
	return nil
}

// input is the state of all devices: which there are, and which belong to somebody, or will in a moment.
func (d *dynamicResources) input(c Cluster) device.Input {
	in := device.Input{
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
	for o := range c.List(taintRules(), "") {
		in.Rules = append(in.Rules, o.(*resourcev1.DeviceTaintRule))
	}
	there := map[types.UID]bool{}
	for o := range c.List(gr.ResourceClaims, "") {
		claim := o.(*resourcev1.ResourceClaim)
		if there[claim.UID] = true; claim.Status.Allocation != nil {
			in.Used.Add(claim.Status.Allocation)
			d.flying.landed(claim.UID)
			d.flying.landed(extendedFor(claim))
		}
	}
	d.flying.keep(func(uid types.UID) bool { return there[uid] }, func(pod *corev1.Pod) bool {
		o, found := c.Get(gr.Pods, pod.Namespace, pod.Name)
		return found && o.GetUID() == pod.UID && !ended(o.(*corev1.Pod))
	})
	d.flying.each(in.Used.Add)
	return in
}

func (w *devicesOf) filter(n *NodeInfo) *Verdict {
	for i := range w.settled {
		if !w.settled[i].reaches(n.Node) {
			return w.elsewhere
		}
	}
	claims, found := w.open, finding{}
	if w.extended != nil {
		if w.extended.left != nil {
			return w.again
		}
		if found.extended = w.extended.on(n); found.extended != nil {
			claims = append(slices.Clip(claims), found.extended.claim)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	results, err := w.alloc.Allocate(n.Node, claims)
	switch {
	case errors.Is(err, device.ErrUnavailable) || errors.Is(err, device.ErrNoSelector):
		return NotEver(err.Error())
	case err != nil:
		return Failed(err)
	case results == nil:
		return w.nothing
	}
	found.results = results
	w.found[n.Name()] = found
	return nil
}

// hasChoices says that some request has several ways to be satisfied, of which the first is the best.
func (w *devicesOf) hasChoices() bool {
	for _, c := range w.open {
		for _, r := range c.Spec.Devices.Requests {
			if len(r.FirstAvailable) > 0 {
				return true
			}
		}
	}
	return false
}

// score is the better the earlier the ways are that a node offers.
func (w *devicesOf) score(node string) (sum int64) {
	found := w.found[node]
	for i, claim := range w.open {
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

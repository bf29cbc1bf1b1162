package devicetaint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// world has the objects that evictions are decided from.
type world struct {
	claim  func(namespace, name string) *resourcev1.ResourceClaim
	slices func() []*resourcev1.ResourceSlice
	rules  []*resourcev1.DeviceTaintRule
}

// newWorld returns the world from the views of a controller.
func newWorld(c *control.Cluster) *world {
	w := &world{
		claim: func(namespace, name string) *resourcev1.ResourceClaim {
			claim, _ := control.Get[*resourcev1.ResourceClaim](c, gr.ResourceClaims, namespace, name)
			return claim
		},
		slices: func() []*resourcev1.ResourceSlice {
			return slices.Collect(control.List[*resourcev1.ResourceSlice](c, gr.ResourceSlices, ""))
		},
	}
	for r := range control.List[*resourcev1.DeviceTaintRule](c, rules(), "") {
		w.rules = append(w.rules, r)
	}
	return w
}

// eviction is the time at which a Pod has to be deleted, and the rules that cause it.
type eviction struct {
	at    time.Time
	rules []types.UID
}

// eviction returns when a Pod has to be deleted because of the taints of its devices; nil if it may stay.
func (w *world) eviction(pod *corev1.Pod) (out *eviction) {
	for claim := range w.claims(pod) {
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			for _, t := range w.taints(r) {
				after, goes := toleratedFor(t.DeviceTaint, r.Tolerations)
				if !goes {
					continue
				}
				at := time.Time{} // for a taint without a time
				if t.TimeAdded != nil {
					at = t.TimeAdded.Add(after)
				}
				if out == nil {
					out = &eviction{at: at}
				}
				if at.Before(out.at) {
					out.at = at
				}
				if t.rule != "" && !slices.Contains(out.rules, t.rule) {
					out.rules = append(out.rules, t.rule)
				}
			}
		}
	}
	return out
}

// claims yields the allocated claims that are reserved for a Pod with a node.
func (w *world) claims(pod *corev1.Pod) func(yield func(*resourcev1.ResourceClaim) bool) {
	return func(yield func(*resourcev1.ResourceClaim) bool) {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return
		}
		for i := range pod.Spec.ResourceClaims {
			name, own := claimName(pod, &pod.Spec.ResourceClaims[i])
			if name == "" {
				continue
			}
			claim := w.claim(pod.Namespace, name)
			if claim == nil || claim.Status.Allocation == nil || own && !metav1.IsControlledBy(claim, pod) || !isReservedFor(claim, pod) {
				continue
			}
			if !yield(claim) {
				return
			}
		}
	}
}

// claimName returns the name of a claim, or "". own is true if the claim was generated for the Pod.
func claimName(pod *corev1.Pod, r *corev1.PodResourceClaim) (name string, own bool) {
	if r.ResourceClaimName != nil {
		return *r.ResourceClaimName, false
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == r.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName, true
		}
	}
	return "", false
}

func isReservedFor(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
}

// taint is a NoExecute taint, and the UID of the rule it comes from; empty if it is in a ResourceSlice.
type taint struct {
	resourcev1.DeviceTaint
	rule types.UID
}

// taints returns the NoExecute taints of a device.
func (w *world) taints(r *resourcev1.DeviceRequestAllocationResult) (out []taint) {
	if d := w.device(r); d != nil {
		for _, t := range d.Taints {
			if t.Effect == resourcev1.DeviceTaintEffectNoExecute {
				out = append(out, taint{t, ""})
			}
		}
	}
	for _, rule := range w.rules {
		if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute && selects(rule, r) {
			out = append(out, taint{rule.Spec.Taint, rule.UID})
		}
	}
	return out
}

// device returns a device from the newest generation of its pool, or nil.
func (w *world) device(r *resourcev1.DeviceRequestAllocationResult) (out *resourcev1.Device) {
	newest := int64(-1)
	for _, s := range w.slices() {
		if s.Spec.Driver != r.Driver || s.Spec.Pool.Name != r.Pool || s.Spec.Pool.Generation < newest {
			continue
		}
		if s.Spec.Pool.Generation > newest {
			newest, out = s.Spec.Pool.Generation, nil
		}
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Name == r.Device {
				out = &s.Spec.Devices[i]
			}
		}
	}
	return out
}

// selects reports whether a rule taints a device. A rule without a selector taints none.
func selects(rule *resourcev1.DeviceTaintRule, r *resourcev1.DeviceRequestAllocationResult) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && (s.Driver == nil || *s.Driver == r.Driver) && (s.Pool == nil || *s.Pool == r.Pool) &&
		(s.Device == nil || *s.Device == r.Device)
}

// toleratedFor reports whether a taint evicts a Pod, and after how long: the shortest time of all matching tolerations.
func toleratedFor(t resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration) (after time.Duration, goes bool) {
	seconds := int64(-1)
	for _, o := range tolerations {
		if o.Effect != resourcev1.DeviceTaintEffectNoExecute || !tolerates(o, t) {
			continue
		}
		if o.TolerationSeconds == nil {
			return 0, false
		}
		if s := max(*o.TolerationSeconds, 0); seconds < 0 || s < seconds {
			seconds = s
		}
	}
	return time.Duration(max(seconds, 0)) * time.Second, true
}

func tolerates(o resourcev1.DeviceToleration, t resourcev1.DeviceTaint) bool {
	if o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case "", resourcev1.DeviceTolerationOpEqual:
		return o.Value == t.Value
	case resourcev1.DeviceTolerationOpExists:
		return true
	}
	return false
}

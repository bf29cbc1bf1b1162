// Package devicetaint deletes Pods whose devices have NoExecute taints that their claims do not tolerate, or tolerate only for a
// while. A driver taints a device in its ResourceSlice, an administrator many at once by a DeviceTaintRule; of the rules it also
// keeps the status, which says how far they are.
package devicetaint

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const name = "device-taint-eviction-controller"

func rules() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}
}

// Controllers returns the loops: one evicts Pods, one keeps the status of rules.
func Controllers() []control.Controller {
	m := &memory{marked: map[types.UID]bool{}, evicted: map[types.UID]int{}}
	return []control.Controller{
		{
			Name: name, For: gr.Pods, Workers: 8,
			When: func(old, now kind.Object) bool {
				p, ok := now.(*corev1.Pod)
				if !ok {
					return true // a deleted Pod is to be forgotten
				}
				was, had := old.(*corev1.Pod)
				return len(p.Spec.ResourceClaims) > 0 && p.Spec.NodeName != "" && (!had || was.Spec.NodeName == "")
			},
			Triggers: []control.Trigger{
				{On: gr.ResourceClaims, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] { return users(o) }, When: claimMatters},
				{On: gr.ResourceSlices, Keys: usersOfSlice, When: sliceMatters},
				{On: rules(), Keys: usersOfRule, When: ruleMatters},
			},
			Writes: []control.Write{{On: gr.Pods, Do: "delete update/status"}},
			Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
				return m.reconcile(ctx, c, k)
			},
		},
		{
			Name: name, For: rules(), Reads: []schema.GroupResource{gr.Pods, gr.ResourceClaims, gr.ResourceSlices},
			Writes: []control.Write{{On: rules(), Do: "update/status"}},
			When: func(old, now kind.Object) bool {
				return now != nil && (old == nil || old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID())
			},
			Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
				return m.report(ctx, c, k)
			},
		},
	}
}

// memory is which Pods are bound to go, to say so when they are not any more, and how many have gone because of a rule. After a
// restart it begins anew, and nothing but words depends on it.
type memory struct {
	mu      sync.Mutex // guards what follows
	marked  map[types.UID]bool
	evicted map[types.UID]int // by rule
}

// mark remembers or forgets that a Pod is bound to go, and says whether it was.
func (m *memory) mark(uid types.UID, goes bool) (was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.marked[uid]
	if goes {
		m.marked[uid] = true
	} else {
		delete(m.marked, uid)
	}
	return was
}

func (m *memory) count(by []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rule := range by {
		m.evicted[rule]++
	}
}

func (m *memory) gone(rule types.UID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evicted[rule]
}

// prune forgets Pods that are not there any more, now and then.
func (m *memory) prune(c *control.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marked) < 1024 {
		return
	}
	living := map[types.UID]bool{}
	for p := range c.View(gr.Pods).List("") {
		living[p.GetUID()] = true
	}
	for uid := range m.marked {
		if !living[uid] {
			delete(m.marked, uid)
		}
	}
}

func (m *memory) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
	if !found {
		m.prune(c)
		return 0, nil
	}
	if pod.DeletionTimestamp != nil {
		m.mark(pod.UID, false)
		return 0, nil
	}
	e := look(c).eviction(pod)
	if e == nil {
		if m.mark(pod.UID, false) {
			c.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return 0, nil
	}
	m.mark(pod.UID, true)
	now := time.Now()
	if left := e.at.Sub(now); left > 0 {
		return left, nil
	}
	if err := evict(ctx, c, pod, now); err != nil {
		return 0, err
	}
	m.mark(pod.UID, false)
	m.count(e.rules)
	return 0, nil
}

// evict tells people why a Pod goes, and lets it go.
func evict(ctx context.Context, c *control.Cluster, pod *corev1.Pod, now time.Time) error {
	c.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	return workload.Evict(ctx, c, pod, "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint", now)
}

// users are the Pods that a claim is reserved for.
func users(o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		claim, ok := o.(*resourcev1.ResourceClaim)
		if !ok {
			return
		}
		for _, r := range claim.Status.ReservedFor {
			if r.APIGroup == "" && r.Resource == "pods" && !yield(control.Key{Namespace: claim.Namespace, Name: r.Name}) {
				return
			}
		}
	}
}

// usersOf are the Pods whose claims have a device of a kind.
func usersOf(c *control.Cluster, of func(*resourcev1.DeviceRequestAllocationResult) bool) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for claim := range control.List[*resourcev1.ResourceClaim](c, gr.ResourceClaims, "") {
			if claim.Status.Allocation == nil || !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return of(&r) }) {
				continue
			}
			for k := range users(claim) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func usersOfSlice(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	s := o.(*resourcev1.ResourceSlice)
	return usersOf(c, func(r *resourcev1.DeviceRequestAllocationResult) bool {
		return r.Driver == s.Spec.Driver && r.Pool == s.Spec.Pool.Name
	})
}

func usersOfRule(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	rule := o.(*resourcev1.DeviceTaintRule)
	return usersOf(c, func(r *resourcev1.DeviceRequestAllocationResult) bool { return selects(rule, r) })
}

// claimMatters leaves out changes that concern no devices and no users.
func claimMatters(old, now kind.Object) bool {
	was, had := old.(*resourcev1.ResourceClaim)
	is, has := now.(*resourcev1.ResourceClaim)
	if !had || !has {
		return true
	}
	return !apiequality.Semantic.DeepEqual(was.Status.Allocation, is.Status.Allocation) || !apiequality.Semantic.DeepEqual(was.Status.ReservedFor, is.Status.ReservedFor)
}

// sliceMatters leaves out slices that never drive anybody off.
func sliceMatters(old, now kind.Object) bool { return drives(old) || drives(now) }

func drives(o kind.Object) bool {
	s, ok := o.(*resourcev1.ResourceSlice)
	return ok && s != nil && slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect == resourcev1.DeviceTaintEffectNoExecute })
	})
}

// ruleMatters leaves out changes of the status.
func ruleMatters(old, now kind.Object) bool {
	was, had := old.(*resourcev1.DeviceTaintRule)
	is, has := now.(*resourcev1.DeviceTaintRule)
	return !had || !has || !apiequality.Semantic.DeepEqual(was.Spec, is.Spec)
}

// Package devicetaint evicts Pods whose devices have NoExecute taints that their claims do not tolerate, or tolerate only for
// a while. A driver taints a device in its ResourceSlice; an administrator taints devices by a DeviceTaintRule. The package
// also writes the status of rules, which reports the progress of evictions.
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
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const name = "device-taint-eviction-controller"

func rules() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}
}

// Controllers returns the controllers: one evicts Pods, one keeps the status of rules.
func Controllers() []control.Controller {
	m := &evictions{pending: map[types.UID]bool{}, evicted: map[types.UID]int{}}
	return []control.Controller{
		{
			Name: name, For: gr.Pods, Workers: 8,
			When: func(old, now kind.Object) bool {
				p, ok := now.(*corev1.Pod)
				if !ok {
					return true // a deleted Pod is removed from memory
				}
				was, had := old.(*corev1.Pod)
				return len(p.Spec.ResourceClaims) > 0 && p.Spec.NodeName != "" && (!had || was.Spec.NodeName == "")
			},
			Triggers: []control.Trigger{
				{On: gr.ResourceClaims, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] { return podsOfClaim(o) },
					When: isRelevantClaimChange},
				{On: gr.ResourceSlices, Keys: podsOfSlice, When: isRelevantSliceChange},
				{On: rules(), Keys: podsOfRule, When: hasNewSpec},
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

// evictions remembers which Pods are pending eviction, to record an Event when an eviction is cancelled, and how many Pods each
// rule has evicted. It is lost with the process; only Events and messages depend on it.
type evictions struct {
	mu      sync.Mutex // guards what follows
	pending map[types.UID]bool
	evicted map[types.UID]int // by rule
}

// setPending sets whether a Pod is pending eviction, and returns whether it was.
func (m *evictions) setPending(uid types.UID, goes bool) (was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.pending[uid]
	if goes {
		m.pending[uid] = true
	} else {
		delete(m.pending, uid)
	}
	return was
}

func (m *evictions) count(by []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rule := range by {
		m.evicted[rule]++
	}
}

func (m *evictions) evictedBy(rule types.UID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evicted[rule]
}

// prune forgets deleted Pods when many are remembered.
func (m *evictions) prune(c *control.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.pending) < 1024 {
		return
	}
	exists := map[types.UID]bool{}
	for p := range c.View(gr.Pods).List("") {
		exists[p.GetUID()] = true
	}
	for uid := range m.pending {
		if !exists[uid] {
			delete(m.pending, uid)
		}
	}
}

func (m *evictions) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
	if !found {
		m.prune(c)
		return 0, nil
	}
	if pod.DeletionTimestamp != nil {
		m.setPending(pod.UID, false)
		return 0, nil
	}
	e := newWorld(c).eviction(pod)
	if e == nil {
		if m.setPending(pod.UID, false) {
			c.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return 0, nil
	}
	m.setPending(pod.UID, true)
	now := time.Now()
	if left := e.at.Sub(now); left > 0 {
		return left, nil
	}
	if err := evict(ctx, c, pod, now); err != nil {
		return 0, err
	}
	m.setPending(pod.UID, false)
	m.count(e.rules)
	return 0, nil
}

// evict records an Event and evicts a Pod.
func evict(ctx context.Context, c *control.Cluster, pod *corev1.Pod, now time.Time) error {
	c.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	return workload.Evict(ctx, c, pod, "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint", now)
}

// podsOfClaim yields the Pods that a claim is reserved for.
func podsOfClaim(o kind.Object) iter.Seq[control.Key] {
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

// podsWithDevice yields the Pods whose claims have a device for which of returns true.
func podsWithDevice(c *control.Cluster, of func(*resourcev1.DeviceRequestAllocationResult) bool) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for claim := range control.List[*resourcev1.ResourceClaim](c, gr.ResourceClaims, "") {
			if claim.Status.Allocation == nil ||
				!slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
					func(r resourcev1.DeviceRequestAllocationResult) bool { return of(&r) }) {
				continue
			}
			for k := range podsOfClaim(claim) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func podsOfSlice(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	s := o.(*resourcev1.ResourceSlice)
	return podsWithDevice(c, func(r *resourcev1.DeviceRequestAllocationResult) bool {
		return r.Driver == s.Spec.Driver && r.Pool == s.Spec.Pool.Name
	})
}

func podsOfRule(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	rule := o.(*resourcev1.DeviceTaintRule)
	return podsWithDevice(c, func(r *resourcev1.DeviceRequestAllocationResult) bool { return selects(rule, r) })
}

// isRelevantClaimChange ignores changes that concern neither the allocation nor the reservations of a claim.
func isRelevantClaimChange(old, now kind.Object) bool {
	was, had := old.(*resourcev1.ResourceClaim)
	is, has := now.(*resourcev1.ResourceClaim)
	if !had || !has {
		return true
	}
	return !apiequality.Semantic.DeepEqual(was.Status.Allocation, is.Status.Allocation) ||
		!apiequality.Semantic.DeepEqual(was.Status.ReservedFor, is.Status.ReservedFor)
}

// isRelevantSliceChange ignores slices without NoExecute taints.
func isRelevantSliceChange(old, now kind.Object) bool {
	return hasNoExecuteTaint(old) || hasNoExecuteTaint(now)
}

func hasNoExecuteTaint(o kind.Object) bool {
	s, ok := o.(*resourcev1.ResourceSlice)
	return ok && s != nil && slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool {
		return slices.ContainsFunc(d.Taints,
			func(t resourcev1.DeviceTaint) bool { return t.Effect == resourcev1.DeviceTaintEffectNoExecute })
	})
}

// hasNewSpec ignores changes of the status.
func hasNewSpec(old, now kind.Object) bool {
	was, had := old.(*resourcev1.DeviceTaintRule)
	is, has := now.(*resourcev1.DeviceTaintRule)
	return !had || !has || !apiequality.Semantic.DeepEqual(was.Spec, is.Spec)
}

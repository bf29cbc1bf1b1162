// Package quota keeps the used amounts of ResourceQuotas. The server adds to them in the transaction that creates an object;
// this controller recounts when objects are deleted or use less, and when a quota is new or changed. kinds/lib/quotausage
// defines what an object uses, for both.
package quota

import (
	"iter"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	usage "proa.dev/kinds/lib/quotausage"
)

const (
	// resync is the interval at which a quota is recounted although nothing is known to have changed.
	resync = 5 * time.Minute
	// unwatchedResync is the resync interval of a quota that bounds a resource without a view: it is not served, or not for long.
	unwatchedResync = 15 * time.Second
	// pauseFactor is the pause between two counts of a quota, as a multiple of the time that the last count took, so that frequent
	// changes in a large namespace do not keep the controller busy.
	pauseFactor = 10
)

// Controller returns the controller. resources are the built-in namespaced resources; custom returns the custom ones, of which
// it has views as long as a quota bounds them.
func Controller(resources []schema.GroupResource, custom func() []schema.GroupResource) control.Controller {
	l := &reconciler{counted: map[control.Key]countTime{}}
	ctl := control.Controller{
		Name: "resourcequota-controller", For: gr.ResourceQuotas, When: mustRecount, Workers: 5,
		Reads:     []schema.GroupResource{control.Any(), gr.APIServices},
		Writes:    []control.Write{{On: gr.ResourceQuotas, Do: "update/status"}},
		Reconcile: l.reconcile,
		DynamicViews: &control.DynamicViews{
			Resources: func(c *control.Cluster) []schema.GroupResource { return boundedResources(c, custom()) }, Trigger: recount,
			WakeAll: true,
		},
	}
	for _, on := range resources {
		if !usage.IsIgnored(on) {
			ctl.Triggers = append(ctl.Triggers, recount(on))
			if usage.NeedsDevices(on) {
				ctl.Reads = append(ctl.Reads, gr.DeviceClasses)
			}
		}
	}
	return ctl
}

// recount returns the trigger of a resource, which wakes the quotas that may be used less.
func recount(on schema.GroupResource) control.Trigger {
	return control.Trigger{On: on, When: mayFree, Keys: quotasBounding(on)}
}

// boundedResources returns the resources that a quota bounds.
func boundedResources(c *control.Cluster, resources []schema.GroupResource) (out []schema.GroupResource) {
	if len(resources) == 0 {
		return nil
	}
	by := map[schema.GroupResource]bool{}
	for q := range control.List[*corev1.ResourceQuota](c, gr.ResourceQuotas, "") {
		for _, on := range usage.Resources(q.Spec.Hard, nil) {
			by[on] = true
		}
	}
	for _, on := range resources {
		if by[on] {
			out = append(out, on)
		}
	}
	return out
}

// mustRecount reports whether a change of a quota itself requires a recount. The amounts that the server adds do not.
func mustRecount(old, now kind.Object) bool {
	q, is := now.(*corev1.ResourceQuota)
	was, had := old.(*corev1.ResourceQuota)
	if !is || !had {
		return is
	}
	return len(q.Status.Used) < len(was.Status.Used) || !usage.Equal(q.Status.Hard, q.Spec.Hard) ||
		!equality.Semantic.DeepEqual(was.Spec, q.Spec)
}

// mayFree reports whether an object may use less after a change.
func mayFree(old, now kind.Object) bool {
	return now == nil || (old != nil && usage.MayFree(now, old, time.Now()))
}

// quotasBounding returns a function that yields the quotas in an object's namespace that bound its resource.
func quotasBounding(on schema.GroupResource) func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
	return func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
		return func(yield func(control.Key) bool) {
			for q := range control.List[*corev1.ResourceQuota](c, gr.ResourceQuotas, o.GetNamespace()) {
				counts := usage.NeedsDevices(on) || len(usage.Counter{Resource: on}.Names(q.Spec.Hard)) > 0
				if counts && !yield(control.KeyOf(q)) {
					return
				}
			}
		}
	}
}

// reconciler remembers when each quota was last counted, and how long that took.
type reconciler struct {
	mu      sync.Mutex // guards counted
	counted map[control.Key]countTime
}

type countTime struct {
	at   time.Time
	took time.Duration
}

// untilNextCount returns the time until a quota may be counted again.
func (l *reconciler) untilNextCount(k control.Key, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.counted[k]
	if last.at.After(now) { // the clock was set back
		return 0
	}
	return max(0, last.at.Add(pauseFactor*last.took).Sub(now))
}

func (l *reconciler) recordCount(k control.Key, now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counted[k] = countTime{now, took}
}

func (l *reconciler) forget(k control.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counted, k)
}

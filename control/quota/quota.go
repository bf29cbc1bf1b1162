// Package quota counts what is used of each ResourceQuota. The server adds to the count as objects are made, in the same
// transaction; this loop takes away what is freed, and counts everything when a quota is new or changed. What an object
// counts for is decided in kinds/quota, for both.
package quota

import (
	"iter"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	usage "proa.dev/kinds/quota"
)

const (
	// resync is how often a quota is counted although nothing is known to have changed.
	resync = 5 * time.Minute
	// unseen is how often a quota is counted that bounds a resource whose objects nothing tells of: nobody serves it, or not for long.
	unseen = 15 * time.Second
	// rest is how many times as long as the last count of a quota took nothing is counted after it, so that much coming and
	// going in a big namespace does not keep the loop counting.
	rest = 10
)

// Controller returns the loop. resources are those that live in namespaces; custom are those that come and go, which are followed
// as long as a quota bounds them.
func Controller(resources []schema.GroupResource, custom func() []schema.GroupResource) control.Controller {
	l := &loop{counted: map[control.Key]counted{}}
	ctl := control.Controller{
		Name: "resourcequota-controller", For: gr.ResourceQuotas, When: dirty, Workers: 5,
		Reads:     []schema.GroupResource{control.Any()},
		Writes:    []control.Write{{On: gr.ResourceQuotas, Do: "update/status"}},
		Reconcile: l.reconcile,
		Follow: &control.Follow{
			Resources: func(c *control.Cluster) []schema.GroupResource { return bounded(c, custom()) }, Trigger: recount, WakeAll: true,
		},
	}
	for _, on := range resources {
		if !usage.Ignored(on) {
			ctl.Triggers = append(ctl.Triggers, recount(on))
			if usage.NeedsDevices(on) {
				ctl.Reads = append(ctl.Reads, gr.DeviceClasses)
			}
		}
	}
	return ctl
}

// recount wakes the quotas that may be used less after a change of a resource.
func recount(on schema.GroupResource) control.Trigger {
	return control.Trigger{On: on, When: frees, Keys: bounding(on)}
}

// bounded are those of some resources that a quota bounds.
func bounded(c *control.Cluster, resources []schema.GroupResource) (out []schema.GroupResource) {
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

// dirty says that a quota must be counted because of itself. What the server adds to it is right.
func dirty(old, now kind.Object) bool {
	q, is := now.(*corev1.ResourceQuota)
	was, had := old.(*corev1.ResourceQuota)
	if !is || !had {
		return is
	}
	return len(q.Status.Used) < len(was.Status.Used) || !usage.Equal(q.Status.Hard, q.Spec.Hard) || !equality.Semantic.DeepEqual(was.Spec, q.Spec)
}

// frees says that a change may make an object count for less.
func frees(old, now kind.Object) bool {
	return now == nil || (old != nil && usage.Frees(now, old, time.Now()))
}

// bounding are the quotas in an object's namespace that bound its resource.
func bounding(on schema.GroupResource) func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
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

// loop remembers how much work each quota is.
type loop struct {
	mu      sync.Mutex // guards counted
	counted map[control.Key]counted
}

type counted struct {
	at   time.Time
	took time.Duration
}

// early says how long to wait before a quota is counted again.
func (l *loop) early(k control.Key, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.counted[k]
	if last.at.After(now) { // the clock was set back
		return 0
	}
	return max(0, last.at.Add(rest*last.took).Sub(now))
}

func (l *loop) done(k control.Key, now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counted[k] = counted{now, took}
}

func (l *loop) forget(k control.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counted, k)
}

// Package namespace empties namespaces that are being deleted, pods first, and lets them go when nothing is left. It acts on
// what happens to the objects in them; nothing is asked again and again.
package namespace

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Config is what the loop must know of the server.
type Config struct {
	// Resources are those that live in namespaces and can be deleted. They are followed all the time.
	Resources []schema.GroupResource
	// Custom lists those that come and go. A view of them is opened when a namespace is deleted, and asked again while objects remain.
	Custom func() []schema.GroupResource
	Open   func(context.Context, schema.GroupResource) (client.View, error)
	// Undiscovered, if there, lists the group versions of which nobody says what they have: their API servers do not answer. There may be
	// objects of theirs in a namespace, so it stays.
	Undiscovered func() []schema.GroupVersion
}

// Controller returns the loop.
func Controller(config Config) control.Controller {
	e := &emptier{Config: config, seen: map[string]seen{}}
	ctl := control.Controller{
		Name: "namespace-controller", For: gr.Namespaces, Reads: []schema.GroupResource{control.Any()}, Workers: 10,
		When: func(_, now kind.Object) bool { return now == nil || now.GetDeletionTimestamp() != nil },
		Writes: []control.Write{
			{On: gr.Namespaces, Do: "update/status update/finalize"}, {On: control.Any(), Do: "delete deletecollection"},
		},
		Reconcile: e.reconcile,
	}
	for _, on := range config.Resources {
		ctl.Triggers = append(ctl.Triggers, control.Trigger{On: on, When: matters, Keys: terminating})
	}
	return ctl
}

// matters leaves out changes that neither empty nor fill a namespace, nor change what it waits for.
func matters(old, now kind.Object) bool {
	return old == nil || now == nil || (now.GetDeletionTimestamp() != nil && !slices.Equal(old.GetFinalizers(), now.GetFinalizers()))
}

// terminating is the namespace of an object, if it is being deleted.
func terminating(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if ns, found := c.View(gr.Namespaces).Get("", o.GetNamespace()); found && ns.GetDeletionTimestamp() != nil {
			yield(control.KeyOf(ns))
		}
	}
}

// emptier is the loop's work.
type emptier struct {
	Config

	mu   sync.Mutex // guards seen
	seen map[string]seen
}

// seen is what is remembered of a namespace while it empties, only to do less.
type seen struct {
	wrote  time.Time // when its numbers were last written
	looked time.Time
	left   int // how many objects there were then
}

const (
	// pace is how often the numbers in the conditions of a namespace are brought up to date while it empties.
	pace = time.Second
	// each object that is left makes the next look wait for so long: a look costs what is left, and each end of an object is
	// a reason for one.
	perObject = 20 * time.Microsecond
)

// early says how long to wait before the numbers of a namespace are written again.
func (e *emptier) early(name string, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return remaining(e.seen[name].wrote, pace, now)
}

// busy says how long to wait before a namespace is looked at again.
func (e *emptier) busy(name string, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.seen[name]
	return remaining(s.looked, min(time.Duration(s.left)*perObject, pace), now)
}

// remaining is what is left of a time that began. A clock that was set back ends it.
func remaining(began time.Time, d time.Duration, now time.Time) time.Duration {
	if began.After(now) {
		return 0
	}
	return max(0, began.Add(d).Sub(now))
}

func (e *emptier) remember(name string, change func(*seen)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.seen[name]
	change(&s)
	e.seen[name] = s
}

func (e *emptier) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.seen, name)
}

func (e *emptier) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	ns, found := control.Get[*corev1.Namespace](c, gr.Namespaces, "", k.Name)
	if !found || ns.DeletionTimestamp == nil {
		e.forget(k.Name)
		return 0, nil
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return 0, nil
	}
	if wait := e.busy(k.Name, time.Now()); wait > 0 {
		return wait, nil
	}
	return e.empty(ctx, c, ns.DeepCopy())
}

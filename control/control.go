// Package control is hop 9 of 12: the engine that runs controllers. A controller declares what it reads, what wakes it and
// what it may write, and has one function, Reconcile, that brings one key closer to its desired state. The engine has the
// work queue, retries with back-off, and turns panics into errors.
//
// The engine guarantees that a key is not reconciled again before the controller's views show everything that the last
// reconcile of that key has written. A controller may therefore rely on its views to show its own writes, and needs none of
// the expectations that upstream's controllers count.
package control

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Key is the namespace and name of the object that a controller reconciles.
type Key struct{ Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o kind.Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// Trigger declares which keys a change of another resource adds to the queue.
type Trigger struct {
	On schema.GroupResource
	// Of limits the trigger to objects of one name, in one namespace or, if Namespace is empty, in all of them. The zero Key
	// stands for all objects. Changes of other objects do not even wake the engine.
	Of Key
	// Keys maps an object to the keys to reconcile. It is called for the object before and after a change.
	Keys func(*Cluster, kind.Object) iter.Seq[Key]
	// When, if not nil, filters changes: only those for which it returns true wake keys. old is nil for a new object, now for
	// a deleted one. The cache calls it for every change, so it must be quick and must not block.
	When func(old, now kind.Object) bool
}

// Write declares that a controller changes a resource, and by which RBAC verbs, each followed by "/subresource" where it
// writes one, as in "create delete update/status".
type Write struct {
	On schema.GroupResource
	Do string
}

// Controller declares one controller.
type Controller struct {
	// Name is the controller's service account in kube-system, under which it acts.
	Name string
	// For is the resource whose objects are the keys; Of limits it to objects of one name, as in Trigger.
	For schema.GroupResource
	Of  Key
	// When filters the changes of For, as in Trigger.
	When     func(old, now kind.Object) bool
	Triggers []Trigger
	// DynamicViews, if not nil, lets the controller see resources that come and go while it runs.
	DynamicViews *DynamicViews
	// Reads are the views that the controller needs besides those of For and Triggers. Any() stands for views that it opens
	// itself.
	Reads []schema.GroupResource
	// Outlines makes the declared views show outlines of large objects, which costs less memory than decoding them. An object
	// must be read with Whole before it is written.
	Outlines bool
	// Writes lists everything that the controller may change; the engine refuses any other write. Events need not be listed.
	Writes []Write
	// Component is the source component of the controller's Events; empty for Name.
	Component string
	Workers   int
	// Reconcile brings one key closer to its desired state. A positive again reconciles the key once more after that time;
	// an error retries it with back-off.
	Reconcile func(ctx context.Context, c *Cluster, k Key) (again time.Duration, err error)
}

// Any in Reads means that a controller opens views of resources it cannot name beforehand; in Writes, that it changes them.
func Any() schema.GroupResource { return schema.GroupResource{Group: "*", Resource: "*"} }

// views returns the resources that a controller declares to read.
func (c *Controller) views() []schema.GroupResource {
	out := append([]schema.GroupResource{c.For}, c.Reads...)
	for _, t := range c.Triggers {
		out = append(out, t.On)
	}
	if c.DynamicViews != nil {
		out = append(out, gr.CustomResourceDefinitions)
	}
	return out
}

// Role returns the RBAC rules that a controller needs to open its views and to make the writes it declares.
func (c *Controller) Role() []rbacv1.PolicyRule {
	rule := func(on schema.GroupResource, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{on.Group}, Resources: []string{resource}}
	}
	var rules []rbacv1.PolicyRule
	for _, on := range c.views() {
		rules = append(rules, rule(on, on.Resource, "list", "watch"))
	}
	for _, w := range c.Writes {
		for verb := range strings.FieldsSeq(w.Do) {
			verb, sub, isSubresource := strings.Cut(verb, "/")
			resource := w.On.Resource
			if isSubresource {
				resource += "/" + sub
			}
			rules = append(rules, rule(w.On, resource, verb))
		}
	}
	return append(rules, rule(gr.Events, gr.Events.Resource, "create", "update"))
}

// Run runs one controller until ctx ends. m may be nil.
func Run(ctx context.Context, log *slog.Logger, c client.Client, ctl Controller, m *Metrics) error {
	cluster, err := open(ctx, log, c, &ctl)
	if err != nil {
		return err
	}
	own := cluster.eventSource(ctl.For, ctl.Of, ctl.When)
	q := newQueue()
	defer m.attach(ctl.Name, q)()
	defer m.attachEvents(ctl.Name, cluster.events)()
	// All events are subscribed to before any is handled: a handler that looks at another view must get the later changes of that
	// view as events.
	ofKeys := own.Events(ctx)
	ofTriggers := make([]iter.Seq[client.Event], len(ctl.Triggers))
	for i, t := range ctl.Triggers {
		ofTriggers[i] = cluster.eventSource(t.On, t.Of, t.When).Events(ctx)
	}
	var wg sync.WaitGroup
	wg.Go(func() { cluster.events.Run(ctx) })
	wg.Go(func() { ctl.addOwn(q, ofKeys, own) })
	for i, t := range ctl.Triggers {
		wg.Go(func() {
			for ev := range ofTriggers[i] {
				t.wake(cluster, q, ev, own)
			}
		})
	}
	if ctl.DynamicViews != nil {
		f := &viewFollower{DynamicViews: ctl.DynamicViews, cluster: cluster, log: log, queue: q, keys: own}
		wg.Go(func() { f.run(ctx) })
	}
	w := &worker{Controller: &ctl, cluster: cluster, queue: q, log: log, recorder: m.recorder(), running: &wg}
	for range max(1, ctl.Workers) {
		wg.Go(func() { w.run(ctx) })
	}
	<-ctx.Done()
	q.stop()
	wg.Wait()
	return nil
}

// addOwn adds the keys of the controller's own objects to the queue as they change. After a gap every present object follows; those that
// were deleted meanwhile do not, so it remembers the keys it has added.
func (ctl *Controller) addOwn(q *queue, events iter.Seq[client.Event], own client.View) {
	added := map[Key]struct{}{}
	for ev := range events {
		if ev.Gap {
			for k := range added {
				if _, present := own.Get(k.Namespace, k.Name); !present {
					delete(added, k)
					q.add(k, cause{})
				}
			}
			continue
		}
		k, accepted := KeyOf(ev.Object), ctl.When == nil || accepts(ctl.When, ev)
		if ev.Deleted || ev.Old == nil || ev.Old.GetUID() != ev.Object.GetUID() || ev.Old.GetGeneration() != ev.Object.GetGeneration() {
			q.hasten(k)
		}
		if ev.Deleted {
			delete(added, k)
		} else if accepted {
			added[k] = struct{}{}
		}
		if accepted {
			q.add(k, causeOf(ctl.For, ev))
		}
	}
}

// accepts calls a When filter for an event.
func accepts(when func(old, now kind.Object) bool, ev client.Event) bool {
	if ev.Deleted {
		return when(ev.Old, nil)
	}
	return when(ev.Old, ev.Object)
}

// wake adds the keys that an event concerns to the queue. After a gap these are all keys, because a deletion may have been
// missed.
func (t *Trigger) wake(c *Cluster, q *queue, ev client.Event, keys client.View) {
	if ev.Gap {
		for o := range keys.List("") {
			q.add(KeyOf(o), cause{})
		}
		return
	}
	if t.When != nil && !accepts(t.When, ev) {
		return
	}
	why := causeOf(t.On, ev)
	for k := range t.Keys(c, ev.Object) {
		q.add(k, why)
	}
	if ev.Old != nil && !ev.Deleted {
		for k := range t.Keys(c, ev.Old) {
			q.add(k, why)
		}
	}
}

// Package control is hop 9 of 12: it runs controllers. A controller declares what it reads, what wakes it and what it
// may write, and gives one function that brings one key closer to what is wanted. Queueing, retry, and containment of
// panics are here, once.
//
// One promise of the engine carries much: a key is not looked at again before the views show everything that the last look
// at it has written. So a controller may believe its views about its own doings, and needs no expectations.
package control

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Key names what a controller works on.
type Key struct{ Namespace, Name string }

// KeyOf is the key of an object.
func KeyOf(o kind.Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// Trigger says which keys a change of another resource wakes.
type Trigger struct {
	On schema.GroupResource
	// Of names the objects that can matter, with no namespace those of that name in all; the zero Key stands for all objects.
	// Changes of others do not even wake the engine.
	Of Key
	// Keys is asked about the object before and after a change.
	Keys func(*Cluster, kind.Object) iter.Seq[Key]
	// When, if there, leaves out changes that do not matter: old is nil for a new object, now for a deleted one. The cache asks
	// it about every change, so it must be quick and must not block.
	When func(old, now kind.Object) bool
}

// Write is a resource that a controller changes, and how: verbs as in RBAC, each with "/subresource" where it is one,
// as in "create delete update/status".
type Write struct {
	On schema.GroupResource
	Do string
}

// Controller is one loop.
type Controller struct {
	// Name is the controller's service account in kube-system, under which it acts.
	Name string
	// For is the resource whose objects are the keys; Of names those that can matter, as in Trigger.
	For schema.GroupResource
	Of  Key
	// When leaves out changes of For that do not matter, as in Trigger.
	When     func(old, now kind.Object) bool
	Triggers []Trigger
	// Follow, if there, has the controller see resources that come and go while it runs.
	Follow *Follow
	// Reads are views it needs besides those of For and Triggers. Any() stands for whatever it opens itself.
	Reads []schema.GroupResource
	// Outlines has declared views show outlines of objects that are large, which costs less than to decode them. What is written must be Whole.
	Outlines bool
	// Writes is all it may change; anything else is refused. Events need not be named.
	Writes []Write
	// Component is the name under which its Events come; empty for Name.
	Component string
	Workers   int
	// Reconcile brings one key closer to what is wanted. again asks for another look after a while; an error
	// asks for one with back-off.
	Reconcile func(ctx context.Context, c *Cluster, k Key) (again time.Duration, err error)
}

// Any in Reads says that a controller opens views of resources it cannot name beforehand; in Writes, that it changes them.
func Any() schema.GroupResource { return schema.GroupResource{Group: "*", Resource: "*"} }

// views are the resources a controller declares to read.
func (c *Controller) views() []schema.GroupResource {
	out := append([]schema.GroupResource{c.For}, c.Reads...)
	for _, t := range c.Triggers {
		out = append(out, t.On)
	}
	if c.Follow != nil {
		out = append(out, gr.CustomResourceDefinitions)
	}
	return out
}

// Role is what a controller needs to open its views and to write what it declares.
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
			verb, sub, under := strings.Cut(verb, "/")
			resource := w.On.Resource
			if under {
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
	own := cluster.source(ctl.For, ctl.Of, ctl.When)
	q := newQueue()
	defer m.attach(ctl.Name, q)()
	defer m.attachEvents(ctl.Name, cluster.events)()
	var wg sync.WaitGroup
	wg.Go(func() { cluster.events.Run(ctx) })
	wg.Go(func() {
		for ev := range own.Events(ctx) {
			switch {
			case ev.Gap: // every object follows
			case ctl.When == nil || matters(ctl.When, ev):
				q.add(KeyOf(ev.Object), causeOf(ev))
			}
		}
	})
	for _, t := range ctl.Triggers {
		wg.Go(func() {
			for ev := range cluster.source(t.On, t.Of, t.When).Events(ctx) {
				t.wake(cluster, q, ev, own)
			}
		})
	}
	if ctl.Follow != nil {
		f := &follower{Follow: ctl.Follow, cluster: cluster, log: log, queue: q, own: own}
		wg.Go(func() { f.run(ctx) })
	}
	for range max(1, ctl.Workers) {
		wg.Go(func() { work(ctx, log, cluster, q, &ctl) })
	}
	<-ctx.Done()
	q.stop()
	wg.Wait()
	return nil
}

// matters asks When about an event.
func matters(when func(old, now kind.Object) bool, ev client.Event) bool {
	if ev.Deleted {
		return when(ev.Old, nil)
	}
	return when(ev.Old, ev.Object)
}

// wake adds the keys that an event concerns. After a gap that is every key: what was missed may have been a deletion.
func (t *Trigger) wake(c *Cluster, q *queue, ev client.Event, keys client.View) {
	if ev.Gap {
		for o := range keys.List("") {
			q.add(KeyOf(o), cause{})
		}
		return
	}
	if t.When != nil && !matters(t.When, ev) {
		return
	}
	why := causeOf(ev)
	for k := range t.Keys(c, ev.Object) {
		q.add(k, why)
	}
	if ev.Old != nil && !ev.Deleted {
		for k := range t.Keys(c, ev.Old) {
			q.add(k, why)
		}
	}
}

// cause is the write that made a key worth a look.
type cause struct {
	uid types.UID
	rev int64
}

func causeOf(ev client.Event) cause { return cause{ev.Object.GetUID(), ev.Rev} }

// work takes keys from the queue until it ends.
func work(ctx context.Context, log *slog.Logger, c *Cluster, q *queue, ctl *Controller) {
	for {
		k, why, ok := q.take(ctx)
		if !ok {
			return
		}
		trail := &client.Trail{CauseUID: why.uid, CauseRev: why.rev}
		again, err := attempt(client.WithTrail(ctx, trail), c, ctl, k)
		if err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // the next try sees it
				level = slog.LevelDebug
			}
			log.Log(ctx, level, "reconcile", "controller", ctl.Name, "namespace", k.Namespace, "name", k.Name, "err", err)
		}
		if lag := c.settle(ctx, trail); lag != nil && err == nil {
			err = lag
		}
		q.done(k, again, err)
	}
}

// attempt calls Reconcile and turns a panic into an error.
func attempt(ctx context.Context, c *Cluster, ctl *Controller, k Key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return ctl.Reconcile(ctx, c, k)
}

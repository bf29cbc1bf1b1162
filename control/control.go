// Package control is hop 9 of 12: it runs controllers. A controller declares what it reads, what wakes it and what it
// may write, and gives one function that brings one key closer to what is wanted. Queueing, retry, and containment of
// panics are here, once.
package control

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// Key names what a controller works on.
type Key struct{ Namespace, Name string }

// Trigger says which keys a change of another resource wakes.
type Trigger struct {
	On   schema.GroupResource
	Keys func(*Cluster, kind.Object) iter.Seq[Key]
}

// Controller is one loop.
type Controller struct {
	// Name is the controller's service account in kube-system, under which it acts.
	Name string
	// For is the resource whose objects are the keys.
	For      schema.GroupResource
	Triggers []Trigger
	// Reads are views it needs besides those of For and Triggers. Any() stands for whatever it opens itself.
	Reads []schema.GroupResource
	// Writes are resources it changes for which no well-known role exists.
	Writes  []schema.GroupResource
	Workers int
	// Reconcile brings one key closer to what is wanted. again asks for another look after a while; an error
	// asks for one with back-off.
	Reconcile func(ctx context.Context, c *Cluster, k Key) (again time.Duration, err error)
}

// Any in Reads says that a controller opens views of resources it cannot name beforehand.
func Any() schema.GroupResource { return schema.GroupResource{Group: "*", Resource: "*"} }

// views are the resources a controller declares to read.
func (c *Controller) views() []schema.GroupResource {
	out := append([]schema.GroupResource{c.For}, c.Reads...)
	for _, t := range c.Triggers {
		out = append(out, t.On)
	}
	return out
}

// Role is what a controller needs to open its views and to write what it declares.
func (c *Controller) Role() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, gr := range c.views() {
		rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{gr.Group}, Resources: []string{gr.Resource}})
	}
	for _, gr := range c.Writes {
		rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"update"}, APIGroups: []string{gr.Group}, Resources: []string{gr.Resource, gr.Resource + "/status"}})
	}
	return rules
}

// Cluster is what a controller sees: its views, and its way to write.
type Cluster struct {
	client.Writer
	views map[schema.GroupResource]client.View
}

// View returns a declared view.
func (c *Cluster) View(gr schema.GroupResource) client.View { return c.views[gr] }

// Run runs one controller until ctx ends.
func Run(ctx context.Context, log *slog.Logger, c client.Client, ctl Controller) error {
	cluster := &Cluster{Writer: c, views: map[schema.GroupResource]client.View{}}
	for _, gr := range ctl.views() {
		if gr == Any() {
			continue
		}
		v, err := c.View(ctx, gr)
		if err != nil {
			return fmt.Errorf("controller %s: open view of %s: %w", ctl.Name, gr, err)
		}
		cluster.views[gr] = v
	}
	q := newQueue()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ev := range cluster.views[ctl.For].Events(ctx) {
			q.add(Key{ev.Object.GetNamespace(), ev.Object.GetName()})
		}
	})
	for _, t := range ctl.Triggers {
		wg.Go(func() {
			for ev := range cluster.views[t.On].Events(ctx) {
				for k := range t.Keys(cluster, ev.Object) {
					q.add(k)
				}
			}
		})
	}
	for range max(1, ctl.Workers) {
		wg.Go(func() {
			for {
				k, ok := q.take(ctx)
				if !ok {
					return
				}
				again, err := attempt(ctx, cluster, ctl, k)
				if err != nil && ctx.Err() == nil {
					level := slog.LevelWarn
					if apierrors.IsConflict(err) { // somebody was faster; the next try sees it
						level = slog.LevelDebug
					}
					log.Log(ctx, level, "reconcile", "controller", ctl.Name, "namespace", k.Namespace, "name", k.Name, "err", err)
				}
				q.done(k, again, err)
			}
		})
	}
	<-ctx.Done()
	q.stop()
	wg.Wait()
	return nil
}

// attempt calls Reconcile and turns a panic into an error.
func attempt(ctx context.Context, c *Cluster, ctl Controller, k Key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return ctl.Reconcile(ctx, c, k)
}

package control

import (
	"context"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// stub is a view of at most one object, whose events end when ended is closed.
type stub struct {
	object kind.Object
	ended  chan struct{}
}

func (s *stub) Get(_, name string) (kind.Object, bool) {
	return s.object, s.object != nil && s.object.GetName() == name
}
func (s *stub) List(string) iter.Seq[kind.Object]             { return func(func(kind.Object) bool) {} }
func (s *stub) By(client.Index, string) iter.Seq[kind.Object] { return s.List("") }
func (s *stub) Unreadable(string) []string                    { return nil }
func (s *stub) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(func(client.Event) bool) {
		select {
		case <-ctx.Done():
		case <-s.ended:
		}
	}
}
func (s *stub) Reach(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }

// opener counts the views that are opened.
type opener struct {
	client.Client
	opened []*stub
}

func (o *opener) View(context.Context, schema.GroupResource) (client.View, error) {
	o.opened = append(o.opened, &stub{ended: make(chan struct{})})
	return o.opened[len(o.opened)-1], nil
}

// TestFollow checks that a resource has one view as long as it is served, and a new one when its definition was replaced or
// its view has ended.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toys := schema.GroupResource{Group: "example.com", Resource: "toys"}
		definitions := &stub{ended: make(chan struct{})}
		define := func(uid types.UID) {
			d := &apiextensionsv1.CustomResourceDefinition{}
			d.Name, d.UID = "toys.example.com", uid
			definitions.object = d
		}
		define("1")
		open := &opener{}
		c := &Cluster{client: open, views: map[schema.GroupResource]client.View{gr.CustomResourceDefinitions: definitions},
			refresh: wait.NewSignal()}
		served := []schema.GroupResource{toys}
		follow := &DynamicViews{
			Resources: func(*Cluster) []schema.GroupResource { return served },
			Trigger:   func(on schema.GroupResource) Trigger { return Trigger{On: on} },
		}
		f := &viewFollower{DynamicViews: follow, cluster: c, log: slog.New(slog.DiscardHandler), queue: newQueue(), keys: definitions}
		ctx, stop := context.WithCancel(t.Context())
		go f.run(ctx)
		look := func(what string, views int) {
			t.Helper()
			c.RefreshDynamicViews()
			synctest.Wait()
			if len(open.opened) != views {
				t.Errorf("%s: %d views were opened, not %d", what, len(open.opened), views)
			}
			if v := c.View(toys); (v != nil) != (len(served) > 0) || v != nil && v != client.View(open.opened[views-1]) {
				t.Errorf("%s: the view is not the last one", what)
			}
		}
		look("a resource", 1)
		look("the same", 1)
		define("2")
		look("another definition", 2)
		close(open.opened[1].ended)
		synctest.Wait()
		look("a view that has ended", 3)
		close(open.opened[2].ended)
		time.Sleep(2 * reopen)
		look("a view that has ended without a change of definitions", 4)
		served = nil
		look("a resource that is no longer served", 4)
		time.Sleep(2 * linger)
		stop()
		synctest.Wait()
	})
}

// TestFollowEmpty checks that a resource without objects has no view until it gets one, and that all keys are woken then.
func TestFollowEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toys := schema.GroupResource{Group: "example.com", Resource: "toys"}
		definitions := &listing{stub{ended: make(chan struct{})}}
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Name, d.UID = "toys.example.com", "1"
		definitions.object = d
		open := &opener{}
		c := &Cluster{client: open, views: map[schema.GroupResource]client.View{gr.CustomResourceDefinitions: definitions},
			refresh: wait.NewSignal()}
		occupied, newlyOccupied := false, make(chan struct{}, 1)
		f := &viewFollower{DynamicViews: &DynamicViews{
			Resources: func(*Cluster) []schema.GroupResource { return []schema.GroupResource{toys} },
			Trigger:   func(on schema.GroupResource) Trigger { return Trigger{On: on} },
			WakeAll:   true, Occupied: func(schema.GroupResource) bool { return occupied }, NewlyOccupied: newlyOccupied,
		}, cluster: c, log: slog.New(slog.DiscardHandler), queue: newQueue(), keys: definitions}
		ctx, stop := context.WithCancel(t.Context())
		go f.run(ctx)
		look := func(what string, views int, woken bool) {
			t.Helper()
			synctest.Wait()
			if len(open.opened) != views {
				t.Errorf("%s: %d views were opened, not %d", what, len(open.opened), views)
			}
			soon, end := context.WithTimeout(t.Context(), time.Second)
			defer end()
			k, _, got := f.queue.take(soon)
			if got != woken {
				t.Errorf("%s: woken is %t", what, got)
			}
			if got {
				f.queue.done(k, 0, nil)
			}
		}
		look("a resource that has come", 0, true)
		c.RefreshDynamicViews()
		look("the same", 0, false)
		occupied = true
		newlyOccupied <- struct{}{}
		look("its first object", 1, true)
		d.UID, occupied = "2", false
		c.RefreshDynamicViews()
		look("another definition", 1, true)
		time.Sleep(2 * linger)
		stop()
		synctest.Wait()
	})
}

// listing is a stub that lists its object.
type listing struct{ stub }

func (l *listing) List(string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) { yield(l.object) }
}

// TestSettleWithoutResource checks that reach does not wait for the view of a resource that is no longer served.
func TestSettleWithoutResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		f := &dynamicView{view: &stub{}, life: life, end: end}
		time.AfterFunc(time.Second, end)
		if err := f.reach(t.Context(), 7); err != nil {
			t.Errorf("wait for a resource that is no longer served: %v", err)
		}
	})
}

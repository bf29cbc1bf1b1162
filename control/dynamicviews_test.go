package control

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
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

// stubView is a view of at most one object, whose events end when ended is closed.
type stubView struct {
	object kind.Object
	ended  chan struct{}
}

func (s *stubView) Get(_, name string) (kind.Object, bool) {
	return s.object, s.object != nil && s.object.GetName() == name
}
func (s *stubView) List(string) iter.Seq[kind.Object]             { return func(func(kind.Object) bool) {} }
func (s *stubView) By(client.Index, string) iter.Seq[kind.Object] { return s.List("") }
func (s *stubView) Unreadable(string) []string                    { return nil }
func (s *stubView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(func(client.Event) bool) {
		select {
		case <-ctx.Done():
		case <-s.ended:
		}
	}
}
func (s *stubView) Reach(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }

// countingClient keeps the views that are opened.
type countingClient struct {
	client.Client
	mu    sync.Mutex // guards views
	views []*stubView
}

func (o *countingClient) View(context.Context, schema.GroupResource) (client.View, error) {
	v := &stubView{ended: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.views = append(o.views, v)
	return v, nil
}

// opened returns the views that were opened.
func (o *countingClient) opened() []*stubView {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.views)
}

// TestDynamicViewIsReplaced checks that a resource has one view as long as it is served, and a new one when its definition was
// replaced or its view has ended.
func TestDynamicViewIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toys := schema.GroupResource{Group: "example.com", Resource: "toys"}
		definitions := &stubView{ended: make(chan struct{})}
		define := func(uid types.UID) {
			d := &apiextensionsv1.CustomResourceDefinition{}
			d.Name, d.UID = "toys.example.com", uid
			definitions.object = d
		}
		define("1")
		opener := &countingClient{}
		c := &Cluster{client: opener, views: map[schema.GroupResource]client.View{gr.CustomResourceDefinitions: definitions},
			refresh: wait.NewSignal()}
		served := []schema.GroupResource{toys}
		follow := &DynamicViews{
			Resources: func(*Cluster) []schema.GroupResource { return served },
			Trigger:   func(on schema.GroupResource) Trigger { return Trigger{On: on} },
		}
		f := &viewFollower{DynamicViews: follow, cluster: c, log: slog.New(slog.DiscardHandler), queue: newQueue(), keys: definitions}
		ctx, stop := context.WithCancel(t.Context())
		go f.run(ctx)
		check := func(title string, views int) {
			t.Helper()
			c.RefreshDynamicViews()
			synctest.Wait()
			if len(opener.opened()) != views {
				t.Errorf("%s: %d views were opened, not %d", title, len(opener.opened()), views)
			}
			if v := c.View(toys); (v != nil) != (len(served) > 0) || v != nil && v != client.View(opener.opened()[views-1]) {
				t.Errorf("%s: the view is not the last one", title)
			}
		}
		check("a resource", 1)
		check("the same", 1)
		define("2")
		check("another definition", 2)
		close(opener.opened()[1].ended)
		synctest.Wait()
		check("a view that has ended", 3)
		close(opener.opened()[2].ended)
		time.Sleep(2 * reopen)
		check("a view that has ended without a change of definitions", 4)
		served = nil
		check("a resource that is no longer served", 4)
		time.Sleep(2 * linger)
		stop()
		synctest.Wait()
	})
}

// TestDynamicViewOfEmptyResource checks that a resource without objects has no view until it gets its first object, and that
// all keys are woken then, and when the view has ended.
func TestDynamicViewOfEmptyResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toys := schema.GroupResource{Group: "example.com", Resource: "toys"}
		definitions := &listingView{stubView{ended: make(chan struct{})}}
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Name, d.UID = "toys.example.com", "1"
		definitions.object = d
		opener := &countingClient{}
		c := &Cluster{client: opener, views: map[schema.GroupResource]client.View{gr.CustomResourceDefinitions: definitions},
			refresh: wait.NewSignal()}
		occupied, newlyOccupied := false, make(chan struct{}, 1)
		f := &viewFollower{DynamicViews: &DynamicViews{
			Resources: func(*Cluster) []schema.GroupResource { return []schema.GroupResource{toys} },
			Trigger:   func(on schema.GroupResource) Trigger { return Trigger{On: on} },
			WakeAll:   true, Occupied: func(schema.GroupResource) bool { return occupied }, NewlyOccupied: newlyOccupied,
		}, cluster: c, log: slog.New(slog.DiscardHandler), queue: newQueue(), keys: definitions}
		ctx, stop := context.WithCancel(t.Context())
		go f.run(ctx)
		check := func(title string, views int, woken bool) {
			t.Helper()
			synctest.Wait()
			if len(opener.opened()) != views {
				t.Errorf("%s: %d views were opened, not %d", title, len(opener.opened()), views)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			k, _, got := f.queue.take(ctx)
			if got != woken {
				t.Errorf("%s: woken is %t", title, got)
			}
			if got {
				f.queue.done(k, 0, nil, false)
			}
		}
		check("a resource that has come", 0, true)
		c.RefreshDynamicViews()
		check("the same", 0, false)
		occupied = true
		newlyOccupied <- struct{}{}
		check("its first object", 1, true)
		close(opener.opened()[0].ended)
		check("a view that has ended, and may have missed deletions", 1, true)
		if c.View(toys) != nil {
			t.Error("a view that has ended is still read")
		}
		time.Sleep(2 * reopen)
		check("its next view", 2, true)
		d.UID, occupied = "2", false
		c.RefreshDynamicViews()
		check("another definition", 2, true)
		time.Sleep(2 * linger)
		stop()
		synctest.Wait()
	})
}

// listingView is a stubView that lists its object.
type listingView struct{ stubView }

func (l *listingView) List(string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) { yield(l.object) }
}

// TestReachWithoutResource checks that reach does not block on the view of a resource that is no longer served.
func TestReachWithoutResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		f := &dynamicView{view: &stubView{}, life: life, end: end}
		time.AfterFunc(time.Second, end)
		if err := f.reach(t.Context(), 7); err != nil {
			t.Errorf("wait for a resource that is no longer served: %v", err)
		}
	})
}

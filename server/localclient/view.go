package localclient

import (
	"context"
	"errors"
	"iter"
	"time"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// view is the cache of a resource as controllers and other callers in this process see it.
type view struct {
	def   *kind.Def
	cache *watch.Cache
	sel   watch.Selection // what its events are about
	show  func(*watch.Entry) kind.Object
}

// Outlines returns the same view of outlines in place of whole objects.
func (v *view) Outlines() client.View {
	own := *v
	own.show = (*watch.Entry).Outline
	return &own
}

// Get finds an object.
func (v *view) Get(namespace, name string) (kind.Object, bool) {
	e, found := v.cache.Get(v.def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return v.show(e), true
}

// Whole finds a whole object, also in a view of outlines.
func (v *view) Whole(namespace, name string) (kind.Object, bool) {
	e, found := v.cache.Get(v.def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return e.Object(), true
}

// List yields the objects of a namespace, or of all.
func (v *view) List(namespace string) iter.Seq[kind.Object] {
	entries, _ := v.cache.List(state.KeyPrefix(v.def, namespace), nil)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(v.show(e)) {
				return
			}
		}
	}
}

// By yields the objects that an index finds.
func (v *view) By(index client.Index, value string) iter.Seq[kind.Object] {
	entries := v.cache.By(index.Name, index.Values, value)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(v.show(e)) {
				return
			}
		}
	}
}

// Unreadable returns the keys of the objects that cannot be decoded.
func (v *view) Unreadable(namespace string) []string {
	return v.cache.UnreadableKeys(state.KeyPrefix(v.def, namespace))
}

// Reach waits until the view has reached a revision; 0 for the newest.
func (v *view) Reach(ctx context.Context, rev int64) error {
	if rev == 0 {
		return v.cache.WaitUntilFresh(ctx)
	}
	return v.cache.WaitFor(ctx, rev)
}

// subscription is a watch that was opened, with the state that it starts from.
type subscription struct {
	watcher *watch.Watcher
	entries []*watch.Entry
	rev     int64
	err     error
}

func (v *view) subscribe(ctx context.Context, start watch.Start) *subscription {
	var s subscription
	s.watcher, s.entries, s.rev, s.err = v.cache.Watch(ctx, v.sel, start)
	return &s
}

// Events yields the present objects and then their changes, until ctx ends or the server has stopped. They are the present objects
// of the time of the call: a controller that reads several views and asks for the events of all of them before it reads any
// misses no change between two of its views. A watch that was ended, because it lagged or the cache was loaded again, is resumed where
// it was. When that is no longer possible, an event with Gap is yielded, and the present objects again. When the cache was loaded
// again, the present objects are yielded again after the changes: nobody may have written some since, such as those that could not be
// decoded before. The view shows every change before its event is yielded.
func (v *view) Events(ctx context.Context) iter.Seq[client.Event] {
	first := v.subscribe(ctx, watch.Start{State: true})
	read := func() bool { return true }
	if first.err == nil {
		read = context.AfterFunc(ctx, first.watcher.Close) // when nobody reads the events
	}
	return func(yield func(client.Event) bool) {
		read()
		start, at := watch.Start{State: true}, position{}
		for ctx.Err() == nil {
			s := first
			if first = nil; s == nil {
				s = v.subscribe(ctx, start)
			}
			if _, old := errors.AsType[*watch.TooOld](s.err); old {
				start = watch.Start{State: true}
				continue
			}
			if s.err == nil {
				s.err = v.reachStart(ctx, s)
			}
			if errors.Is(s.err, watch.ErrStopped) {
				return
			}
			if s.err != nil {
				_ = wait.Sleep(ctx, 100*time.Millisecond) // the loop sees that ctx has ended
				continue
			}
			if start.State {
				if at.rev > 0 && !yield(client.Event{Gap: true, Rev: s.rev}) {
					s.watcher.Close()
					return
				}
				at = position{rev: s.rev, reloads: s.watcher.Reloads()}
			}
			if !v.follow(ctx, s, &at, yield) {
				return
			}
			start = watch.Start{After: at.rev}
		}
	}
}

// reachStart waits until the cache has reached the revision at which a watch starts. A watch that is resumed begins with changes from the
// store, which may be ahead of the cache: a controller that is told of a change must find it in the view, since it is not told again.
func (v *view) reachStart(ctx context.Context, s *subscription) error {
	err := v.cache.WaitFor(ctx, s.rev)
	if err != nil {
		s.watcher.Close()
	}
	return err
}

// position is how far the events of a view have been yielded.
type position struct {
	rev     int64 // every change up to here was: a watch ends between two revisions
	reloads int64 // the objects that came with these reloads of the cache were
}

// follow yields the events of a watch until it ends, and reports whether to start another one. If the cache was loaded again since the
// last watch, it yields the present objects after what that watch has missed.
func (v *view) follow(ctx context.Context, s *subscription, at *position, yield func(client.Event) bool) (again bool) {
	defer s.watcher.Close()
	if !v.yieldPresent(s.entries, s.rev, yield) {
		return false
	}
	var idle chan time.Time
	if at.reloads != s.watcher.Reloads() {
		idle = make(chan time.Time)
		close(idle) // the watch may have missed nothing
	}
	var items []watch.Item
	for {
		var err error
		if items, err = s.watcher.Next(ctx, idle, items); err != nil {
			return ctx.Err() == nil && !errors.Is(err, watch.ErrStopped)
		}
		now := time.Now()
		for _, it := range items {
			ev := client.Event{Object: v.show(it.Event.Now), Deleted: it.Event.Type == watch.Deleted, Rev: it.Event.Rev, At: now}
			if it.Event.Prev != nil {
				ev.Old = v.show(it.Event.Prev)
			}
			if !yield(ev) {
				return false
			}
			at.rev = ev.Rev
		}
		if idle != nil {
			if !v.yieldPresent(v.cache.Select(&v.sel), s.rev, yield) {
				return false
			}
			idle, at.reloads = nil, s.watcher.Reloads()
		}
	}
}

// yieldPresent yields objects that were last written up to a revision; the watch tells of later ones.
func (v *view) yieldPresent(entries []*watch.Entry, upTo int64, yield func(client.Event) bool) bool {
	now := time.Now()
	for _, e := range entries {
		if e.Rev <= upTo && !yield(client.Event{Object: v.show(e), Rev: e.Rev, At: now}) {
			return false
		}
	}
	return true
}

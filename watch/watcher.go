package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// TooOld is the error of a watch from a revision that is no longer kept.
type TooOld struct{ Asked, Oldest int64 }

func (e *TooOld) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.Asked, e.Oldest)
}

// ErrSlow ends a watcher that does not keep up.
var ErrSlow = errors.New("the watcher does not read its events in time")

// ErrReloaded ends a watcher when the cache had to be loaded anew.
var ErrReloaded = errors.New("the cache was loaded again")

// queueMax bounds the events that wait for one watcher.
const queueMax = 8192

// Selection says which objects a watcher wants.
type Selection struct {
	// Prefix selects by key: the resource's prefix, a namespace's, or with Exact one object's key.
	Prefix string
	Exact  bool
	// Index selects objects whose index value is this; empty for any.
	Index string
	// Keep selects by the object itself; nil accepts all. It must be quick and must not block.
	Keep func(kind.Object) bool
	// When selects by the change: old is nil for a new object, now for a deleted one; nil accepts all. The present with which a
	// watch may begin is not asked about. It must be quick and must not block.
	When func(old, now kind.Object) bool
}

func (s *Selection) accepts(e *Entry) bool {
	if e == nil {
		return false
	}
	if s.Exact {
		if e.Key != s.Prefix {
			return false
		}
	} else if !strings.HasPrefix(e.Key, s.Prefix) {
		return false
	}
	return s.Keep == nil || s.Keep(e.Object)
}

// see says what an event looks like through the selection; 0 when it cannot be seen.
func (s *Selection) see(ev *Event) Type {
	now, was := ev.Type != Deleted && s.accepts(ev.Now), s.accepts(ev.Prev)
	switch {
	case (now || was) && s.When != nil && !s.When(ev.states()):
	case now && was:
		return Modified
	case now:
		return Added
	case was:
		return Deleted
	}
	return 0
}

// Item is an event as one watcher sees it.
type Item struct {
	As    Type
	Event *Event
}

// Watcher receives the events of one selection. One goroutine calls Next.
type Watcher struct {
	cache *Cache
	sel   Selection
	slot  *slot
	at    int // position in slot

	mu    sync.Mutex // guards what follows
	queue []Item
	seen  int64 // the revision up to which the queue is complete
	err   error
	bell  chan struct{}
}

// Start says where a watch begins.
type Start struct {
	// After is the revision after which events are wanted.
	After int64
	// State begins with the present objects as Added events instead, complete to a revision the caller has
	// waited for.
	State bool
}

// Watch begins a watch. With State the entries of the present are returned, complete to rev.
func (c *Cache) Watch(ctx context.Context, sel Selection, start Start) (w *Watcher, state []*Entry, rev int64, err error) {
	if err := c.loaded(ctx); err != nil {
		return nil, nil, 0, err
	}
	w = &Watcher{cache: c, sel: sel, bell: make(chan struct{}, 1)}
	var past []*Event
	after := start.After
	if !start.State {
		if past, after, err = c.past(ctx, after); err != nil {
			return nil, nil, 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rev = c.rev.Load()
	if start.State {
		state = c.list(sel.Prefix, sel.Keep)
		if sel.Exact {
			state = exactly(state, sel.Prefix)
		}
		w.seen = rev
	} else {
		recent, ok := c.history.after(after)
		if !ok {
			return nil, nil, 0, &TooOld{Asked: start.After, Oldest: c.history.floor}
		}
		for _, events := range [][]*Event{past, recent} {
			for _, ev := range events {
				if as := sel.see(ev); as != 0 {
					w.queue = append(w.queue, Item{as, ev})
				}
			}
		}
		w.seen = max(rev, start.After)
	}
	c.watchers.add(w)
	return w, state, rev, nil
}

func exactly(entries []*Entry, key string) []*Entry {
	for _, e := range entries {
		if e.Key == key {
			return []*Entry{e}
		}
	}
	return nil
}

// past reads from the store what happened after a revision that the history no longer reaches, as after a
// restart, and returns the revision up to which the events are complete: at least the history's floor.
func (c *Cache) past(ctx context.Context, after int64) ([]*Event, int64, error) {
	c.mu.RLock()
	floor := c.history.floor
	c.mu.RUnlock()
	if after >= floor {
		return nil, after, nil
	}
	tooOld := &TooOld{Asked: after, Oldest: floor}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := c.Source.Progress(ctx); err != nil {
		return nil, 0, err
	}
	var events []*Event
	for b, err := range c.Source.Watch(ctx, c.Prefix, after) {
		if errors.Is(err, kv.ErrCompacted) || ctx.Err() != nil {
			return nil, 0, tooOld
		}
		if err != nil {
			return nil, 0, err
		}
		for _, ch := range b.Changes {
			if ev := c.pastEvent(ch); ev != nil {
				events = append(events, ev)
			}
		}
		if b.Rev >= floor {
			return events, b.Rev, nil
		}
	}
	return nil, 0, tooOld
}

// pastEvent decodes a change with its previous state, which the cache no longer has.
func (c *Cache) pastEvent(ch kv.Change) *Event {
	ev := &Event{Type: Modified, Rev: ch.Rev}
	if ch.Prev.Rev == 0 {
		ev.Type = Added
	} else if ev.Prev = c.entry(ch.Prev); ev.Prev == nil {
		return nil
	}
	if !ch.Delete {
		ev.Now = c.entry(ch.Pair)
	} else if ev.Prev != nil {
		ev.Type, ev.Now = Deleted, &Entry{Key: ch.Key, Rev: ch.Rev, Object: ending(ev.Prev.Object, ch.Rev)}
	}
	if ev.Now == nil {
		return nil
	}
	return ev
}

func (w *Watcher) push(as Type, ev *Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.queue) >= queueMax {
		w.queue, w.err = nil, ErrSlow
	} else {
		w.queue = append(w.queue, Item{as, ev})
	}
	w.ring()
}

func (w *Watcher) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *Watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.ring()
}

// Next returns the events that wait, or blocks until there are some, the idle time passes (then it
// returns none), or the watch ends. It reuses buf.
func (w *Watcher) Next(ctx context.Context, idle <-chan time.Time, buf []Item) ([]Item, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			items := append(buf[:0], w.queue...)
			clear(w.queue)
			w.queue = w.queue[:0]
			if cap(w.queue) > 256 {
				w.queue = nil
			}
			w.mu.Unlock()
			return items, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.bell:
		case <-idle:
			return nil, nil
		}
	}
}

// Caught returns the revision up to which everything has been handed out, and false while
// events are still waiting. A bookmark may carry that revision.
func (w *Watcher) Caught() (int64, bool) {
	w.cache.mu.RLock()
	defer w.cache.mu.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 || w.err != nil {
		return 0, false
	}
	return max(w.seen, w.cache.rev.Load()), true
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	w.cache.watchers.remove(w)
}

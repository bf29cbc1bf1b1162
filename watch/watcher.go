package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// ErrStopped ends watchers, and those who wait for a revision, when the cache has stopped. Nothing is lost: the watch can go on at another server, or here after a restart.
var ErrStopped = errors.New("the cache has stopped")

const (
	// queueMax bounds the events that wait for one watcher, besides those with which it begins.
	queueMax = 8192
	// catchUpMax bounds the objects, in bytes of the store, that a watcher gets from the past when it begins.
	catchUpMax = 32 << 20
)

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
	return s.Keep == nil || s.Keep(e.Outline())
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

// Watcher receives the events of one selection, each once, in the order of revisions. One goroutine calls Next.
type Watcher struct {
	cache *Cache
	sel   Selection
	// after is the revision up to which the watcher had everything when it began. It may be ahead of the cache, which must not
	// deliver up to there again when it gets there. It does not change once the cache knows the watcher.
	after int64
	slot  *slot
	at    int // position in slot

	mu     sync.Mutex // guards what follows
	queue  []Item
	room   int   // how many events may wait
	handed int64 // the revision of the last event that Next returned
	err    error
	bell   chan struct{}
}

// Start says where a watch begins.
type Start struct {
	// After is the revision after which events are wanted. It may be ahead of the cache.
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
	w = &Watcher{cache: c, sel: sel, after: start.After, room: queueMax, bell: make(chan struct{}, 1)}
	if start.State {
		state, rev = c.watchState(w)
		return w, state, rev, nil
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		oldest, resumed := c.resume(w)
		if resumed {
			return w, nil, w.after, nil
		}
		if err := w.catchUp(ctx, oldest); errors.Is(err, errPastGone) {
			return nil, nil, 0, &TooOld{Asked: start.After, Oldest: oldest}
		} else if err != nil {
			return nil, nil, 0, err
		}
		// The history may have lost its oldest events meanwhile. Then what is missing now is read as well.
	}
}

// watchState begins a watch of the changes to the present state, which it returns with its revision.
func (c *Cache) watchState(w *Watcher) (state []*Entry, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state = c.list(w.sel.Prefix, w.sel.Keep)
	if w.sel.Exact {
		state = exactly(state, w.sel.Prefix)
	}
	w.after = c.rev.Load()
	c.addWatcher(w)
	return state, w.after
}

// resume lets a watcher have the events after w.after, first those of the history. When the history does not reach back that far it
// does nothing, and returns the revision after which the history has everything.
func (c *Cache) resume(w *Watcher) (oldest int64, resumed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent, ok := c.history.after(w.after)
	if !ok {
		return c.history.floor, false
	}
	for _, ev := range recent {
		if as := w.sel.see(ev); as != 0 {
			w.queue = append(w.queue, Item{as, ev})
		}
	}
	w.after = max(w.after, c.rev.Load())
	w.room += len(w.queue)
	c.addWatcher(w)
	return 0, true
}

// addWatcher lets a watcher have the events of the cache from now on. The cache's lock is held.
func (c *Cache) addWatcher(w *Watcher) {
	select {
	case <-c.ended:
		w.err = ErrStopped
	default:
		c.watchers.add(w)
	}
}

func exactly(entries []*Entry, key string) []*Entry {
	for _, e := range entries {
		if e.Key == key {
			return []*Entry{e}
		}
	}
	return nil
}

// errPastGone says that the store does not have all that a watcher has missed, or that it is too much to send it.
var errPastGone = errors.New("the past is not kept")

// catchUp reads from the store what the watcher has missed after w.after, up to a revision or further, as after a restart. The store
// is ahead of the cache, so what it tells may be ahead too.
func (w *Watcher) catchUp(ctx context.Context, upTo int64) error {
	c := w.cache
	if err := c.Source.Progress(ctx); err != nil {
		return err
	}
	size := 0
	last := map[string]*Entry{}
	for b, err := range c.Source.Watch(ctx, c.Prefix, w.after) {
		if errors.Is(err, kv.ErrCompacted) || ctx.Err() != nil {
			return errPastGone
		}
		if err != nil {
			return err
		}
		for _, ch := range b.Changes {
			ev, err := c.pastEvent(ch, last)
			if err != nil {
				return errPastGone
			}
			if ev == nil {
				continue
			}
			if as := w.sel.see(ev); as != 0 {
				w.queue = append(w.queue, Item{as, ev})
				size += len(ch.Value) + len(ch.Prev.Value)
			}
		}
		if size > catchUpMax {
			return errPastGone
		}
		if w.after = b.Rev; w.after >= upTo {
			return nil
		}
	}
	return errPastGone
}

// pastEvent decodes a change with its previous state, which the cache no longer has. A change to a state that cannot be decoded is no
// event; last keeps the state before it for the next change of the object. It is an error when the watcher may have seen a state of
// the object that is not known here.
func (c *Cache) pastEvent(ch kv.Change, last map[string]*Entry) (*Event, error) {
	ev := &Event{Type: Modified, Rev: ch.Rev}
	if ch.Prev.Rev == 0 {
		ev.Type = Added
	} else if prev, err := c.entry(ch.Prev); err == nil {
		ev.Prev = prev
	} else if ev.Prev = last[ch.Key]; ev.Prev == nil {
		return nil, err
	}
	delete(last, ch.Key)
	if ch.Delete {
		if ev.Prev == nil {
			return nil, nil
		}
		ev.Type, ev.Now = Deleted, ev.Prev.ended(ch.Rev)
		return ev, nil
	}
	now, err := c.entry(ch.Pair)
	if err != nil {
		if ev.Prev != nil {
			last[ch.Key] = ev.Prev
		}
		return nil, nil //nolint:nilerr // it is told to nobody
	}
	ev.Now = now
	return ev, nil
}

func (w *Watcher) push(as Type, ev *Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.queue) >= w.room && ev.Rev != w.handed {
		w.queue, w.err = w.unfinished(), ErrSlow
	} else {
		w.queue = append(w.queue, Item{as, ev})
	}
	w.ring()
}

// unfinished returns the waiting events of the revision of which Next has returned others. Who resumes after that revision does not get
// them again, so they are not dropped.
func (w *Watcher) unfinished() []Item {
	n := 0
	for n < len(w.queue) && w.queue[n].Event.Rev == w.handed {
		n++
	}
	return slices.Clone(w.queue[:n])
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
			w.handed, w.room = items[len(items)-1].Event.Rev, queueMax
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
	return max(w.after, w.cache.rev.Load()), true
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	w.cache.watchers.remove(w)
}

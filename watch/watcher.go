package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// TooOld is the error of a watch from a revision that is no longer kept.
type TooOld struct{ Asked, Oldest int64 }

func (e *TooOld) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.Asked, e.Oldest)
}

// ErrSlow is the error of a watcher that was ended because it does not read its events in time.
var ErrSlow = errors.New("the watcher does not read its events in time")

// ErrReloaded is the error of a watcher that was ended because the cache was loaded again.
var ErrReloaded = errors.New("the cache was loaded again")

// ErrStopped is the error of watchers and of waiting reads when the cache has stopped. The watch can be resumed at
// another server, or after a restart.
var ErrStopped = errors.New("the cache has stopped")

const (
	// queueMax bounds the events that are queued for one watcher, besides those it starts with.
	queueMax = 8192
	// answerTimeout is after how long without an answer of the store, while past changes are read from it, it counts as not available.
	answerTimeout = time.Second
	// catchUpMax bounds the bytes of past changes that are read from the store for a watcher that starts at a past
	// revision.
	catchUpMax = 32 << 20
)

// Selection selects the objects and changes that a watcher gets.
type Selection struct {
	// Prefix selects by key: the prefix of the resource or of a namespace, or with Exact the key of one object.
	Prefix string
	Exact  bool
	// Index selects the objects with this value of Config.Index; empty for any.
	Index string
	// Keep selects by the object itself; nil accepts all. It must be fast and must not block.
	Keep func(kind.Object) bool
	// When selects by the change: old is nil for a new object, now for a deleted one. It is not called for the present
	// objects that a watch may start with. nil accepts all. It must be fast and must not block.
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

// typeOf returns the type that an event has for a watcher with this selection: an object that begins to match is Added,
// one that no longer matches is Deleted. It returns 0 if the watcher does not get the event.
func (s *Selection) typeOf(ev *Event) Type {
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

// Item is an event with the type that it has for one watcher.
type Item struct {
	As    Type
	Event *Event
}

// Watcher receives the events of one selection, each once, in the order of revisions. Next must be called by one
// goroutine only.
type Watcher struct {
	cache *Cache
	sel   Selection
	// after is the revision up to which the watcher had all events when it started. It may be ahead of the cache, which
	// then must not deliver the events up to there again. It does not change after the watcher was added to the cache.
	after   int64
	reloads int64 // of the cache when the watcher was added to it
	slot    *watcherSet
	at      int // position in slot

	mu           sync.Mutex // guards what follows
	queue        []Item
	queueLimit   int   // how many events may be queued
	lastReturned int64 // the revision of the last event that Next returned
	err          error
	ready        wait.Signal // sent when the queue or err changes
}

// Start is where a watch starts.
type Start struct {
	// After is the revision after which events are delivered. It may be ahead of the cache.
	After int64
	// State makes the watch start with the present objects instead.
	State bool
}

// Watch starts a watch. If start.State is set, it also returns the present objects and their revision.
func (c *Cache) Watch(ctx context.Context, sel Selection, start Start) (w *Watcher, state []*Entry, rev int64, err error) {
	if err := c.loaded(ctx); err != nil {
		return nil, nil, 0, err
	}
	w = &Watcher{cache: c, sel: sel, after: start.After, queueLimit: queueMax, ready: wait.NewSignal()}
	if start.State {
		state, rev = c.watchState(w)
		return w, state, rev, nil
	}
	ctx, stop := context.WithTimeout(ctx, revisionTimeout)
	defer stop()
	for {
		oldest, resumed := c.resume(w)
		if resumed {
			return w, nil, w.after, nil
		}
		if err := w.catchUp(ctx, oldest); errors.Is(err, errCannotResume) {
			return nil, nil, 0, &TooOld{Asked: start.After, Oldest: oldest}
		} else if err != nil {
			return nil, nil, 0, err
		}
		// The history may have dropped events meanwhile; then the loop reads these from the store, too.
	}
}

// watchState adds a watcher that starts at the present state, and returns that state with its revision.
func (c *Cache) watchState(w *Watcher) (state []*Entry, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.after = c.rev.Load()
	c.addWatcher(w)
	return c.selected(&w.sel), w.after
}

// Select returns the present objects of a selection.
func (c *Cache) Select(sel *Selection) []*Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.selected(sel)
}

// selected returns the present objects of a selection. The caller holds the lock.
func (c *Cache) selected(sel *Selection) []*Entry {
	all := c.list(sel.Prefix, sel.Keep)
	if sel.Exact {
		return exactly(all, sel.Prefix)
	}
	return all
}

// resume adds a watcher that gets the events after w.after, first those of the history. If the history does not reach
// back that far, it returns false and the oldest revision that the history can resume at.
func (c *Cache) resume(w *Watcher) (oldest int64, resumed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent, ok := c.history.after(w.after)
	if !ok {
		return c.history.floor, false
	}
	for _, ev := range recent {
		if as := w.sel.typeOf(ev); as != 0 {
			w.queue = append(w.queue, Item{as, ev})
		}
	}
	w.after = max(w.after, c.rev.Load())
	w.queueLimit += len(w.queue)
	c.addWatcher(w)
	return 0, true
}

// addWatcher adds a watcher to the cache, whose lock the caller holds.
func (c *Cache) addWatcher(w *Watcher) {
	w.reloads = c.reloads
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

// errCannotResume is the error of a watch that cannot be resumed, because the store has compacted the changes or there
// are too many of them.
var errCannotResume = errors.New("the past is not kept")

// catchUp reads the changes after w.after from the store, at least up to a revision. It is needed for watches that are
// resumed after a restart of the server. The store is ahead of the cache, so w.after may be ahead of the cache
// afterwards.
func (w *Watcher) catchUp(ctx context.Context, upTo int64) error {
	c := w.cache
	if err := c.Source.Progress(ctx); err != nil {
		return err
	}
	size := 0
	last := map[string]*Entry{}
	answered := time.Time{} // when the store last did
	for b, err := range c.Source.Watch(ctx, c.Prefix, w.after) {
		if errors.Is(err, kv.ErrCompacted) {
			return errCannotResume
		}
		if err == nil {
			answered = time.Now()
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		for _, ch := range b.Changes {
			ev, err := c.pastEvent(ch, last)
			if err != nil || ctx.Err() != nil { // decoding may have taken too long
				return errCannotResume
			}
			if ev == nil {
				continue
			}
			if as := w.sel.typeOf(ev); as != 0 {
				w.queue = append(w.queue, Item{as, ev})
				size += len(ch.Value) + len(ch.Prev.Value)
			}
		}
		if size > catchUpMax {
			return errCannotResume
		}
		if w.after = b.Rev; w.after >= upTo {
			return nil
		}
		answered = time.Now() // the objects may have taken long to decode
	}
	if ctx.Err() != nil && time.Since(answered) > answerTimeout {
		return ctx.Err() // the store may have the changes, but does not answer now
	}
	return errCannotResume // there are too many changes to read in time
}

// pastEvent decodes a change and its previous state. It returns nil for a change to a state that cannot be decoded;
// last then keeps the state before it for the next change of the object. It returns an error if the watcher may have
// seen a state of the object that cannot be decoded now.
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
		ev.Type, ev.Now = Deleted, ev.Prev.deletedAt(ch.Rev)
		return ev, nil
	}
	now, err := c.entry(ch.Pair)
	if err != nil {
		if ev.Prev != nil {
			last[ch.Key] = ev.Prev
		}
		return nil, nil // watchers get no event for it
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
	if len(w.queue) >= w.queueLimit && ev.Rev != w.lastReturned {
		w.queue, w.err = w.unfinished(), ErrSlow
	} else {
		w.queue = append(w.queue, Item{as, ev})
	}
	w.ready.Send()
}

// unfinished returns the queued events of the revision of which Next has already returned some. They must not be
// dropped, because a client that resumes after that revision would not get them.
func (w *Watcher) unfinished() []Item {
	n := 0
	for n < len(w.queue) && w.queue[n].Event.Rev == w.lastReturned {
		n++
	}
	return slices.Clone(w.queue[:n])
}

func (w *Watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.ready.Send()
}

// Next returns the queued events. If there are none, it blocks until there are some, until idle fires (then it returns
// none), or until the watch ends. It reuses buf.
func (w *Watcher) Next(ctx context.Context, idle <-chan time.Time, buf []Item) ([]Item, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			items := append(buf[:0], w.queue...)
			w.lastReturned, w.queueLimit = items[len(items)-1].Event.Rev, queueMax
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
		case <-w.ready:
		case <-idle:
			return nil, nil
		}
	}
}

// DeliveredUpTo returns the revision up to which Next has returned all events, and false while events are queued. A bookmark
// may have that revision.
func (w *Watcher) DeliveredUpTo() (int64, bool) {
	w.cache.mu.RLock()
	defer w.cache.mu.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 || w.err != nil {
		return 0, false
	}
	return max(w.after, w.cache.rev.Load()), true
}

// Reloads returns how often the cache had got objects that nobody had written since, when the watch began. If the number is another
// one than that of an earlier watch, there may be objects of which no watch tells, such as those that could not be decoded before.
func (w *Watcher) Reloads() int64 { return w.reloads }

// Close ends the watch.
func (w *Watcher) Close() {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	w.cache.watchers.remove(w)
}

// Package watch is hop 8 of 12: the one copy of the state in a process. A Cache holds every object of one
// resource, fed by one watch on the store; it answers GET and LIST, it fans changes out to watchers, and it is
// what controllers of the same process read.
//
// The laws it keeps:
//
//  1. Changes are applied in the order of revisions, each exactly once.
//  2. A watcher that starts after revision R gets every matching change after R, in order, once, also when the cache has not
//     reached R yet.
//  3. A watcher that does not keep up is ended; it never delays another one or a write.
//  4. A bookmark never runs ahead of a change that has not been delivered.
//  5. Objects in the cache are shared and read-only.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// Source is what a cache needs of the store.
type Source interface {
	kv.Reader
	kv.Watcher
}

// Config describes one cache.
type Config struct {
	// Prefix selects the keys of the resource.
	Prefix string
	Source Source
	// Decode makes the object of a stored pair; its resourceVersion is the pair's revision.
	Decode func(kv.Pair) (kind.Object, error)
	// Index names a value by which watchers often select (a pod's node), so that a change looks only at
	// the watchers of its value. nil for none.
	Index func(kind.Object) string
	// Outline makes a copy of an object without its large parts. With it, objects are held encoded beside their outlines, and decoded when
	// somebody reads one. Indexes and selections then see outlines. nil holds objects whole.
	Outline func(kind.Object) kind.Object
	Log     *slog.Logger
}

// Cache is the state of one resource.
type Cache struct {
	Config

	rev atomic.Int64 // the revision up to which the cache is complete; 0 before the first load
	// changes counts how often an object of the cache was changed, or all were loaded.
	changes atomic.Int64
	ready   chan struct{}

	mu   sync.RWMutex // guards what follows, and orders changes of rev
	tree *btree.BTreeG[*Entry]
	// unreadable are the stored objects that cannot be decoded, by key. They are not in the tree.
	unreadable map[string]*unreadable
	history    history
	watchers   index
	lookups    map[string]*lookup
	moved      chan struct{} // closed and replaced when rev changes and somebody waits
	waiting    int
	failed     error       // why the cache cannot be filled, for those who wait
	reread     atomic.Bool // everything shall be loaded again
	stopFill   context.CancelCauseFunc
	ended      chan struct{} // closed when Run has returned

	offers offers
}

// New makes an empty cache; Run fills it.
func New(c Config) *Cache {
	return &Cache{
		Config:   c,
		ready:    make(chan struct{}),
		tree:     btree.NewG(32, func(a, b *Entry) bool { return a.Key < b.Key }),
		watchers: newIndex(),
		moved:    make(chan struct{}),
		ended:    make(chan struct{}),
	}
}

// Run keeps the cache filled until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	const first = 10 * time.Millisecond
	pause := first
	for ctx.Err() == nil {
		before := c.rev.Load()
		err := c.fill(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errReread) {
			continue
		}
		if c.rev.Load() > before { // it had worked
			pause = first
		}
		c.Log.WarnContext(ctx, "cache lost its watch; loading again", "prefix", c.Prefix, "err", err)
		c.fail(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ended)
	c.watchers.endAll(ErrStopped)
}

// fail notes why the cache cannot be filled; nil when that is tried again.
func (c *Cache) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	c.wake()
}

// fill follows the store from where the cache is, or loads everything when that is no longer possible.
func (c *Cache) fill(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if c.beginFill(stop) {
		if err := c.load(ctx); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	// The watch of a quiet resource shows nothing until it is asked for its progress, and who waits asks only while nothing has failed.
	c.fail(nil)
	for batch, err := range c.Source.Watch(ctx, c.Prefix, c.rev.Load()) {
		if errors.Is(err, kv.ErrCompacted) {
			if lerr := c.load(ctx); lerr != nil {
				return lerr
			}
			return err
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		c.apply(batch)
	}
	return context.Cause(ctx)
}

// beginFill says whether everything must be loaded, and keeps how Reread ends what follows.
func (c *Cache) beginFill(stop context.CancelCauseFunc) (load bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	load = c.rev.Load() == 0 || c.reread.Load()
	c.stopFill = stop
	return load
}

// load replaces the whole content. Watchers are ended: what happened in between is not known.
func (c *Cache) load(ctx context.Context) error {
	tree := btree.NewG(32, func(a, b *Entry) bool { return a.Key < b.Key })
	lost := map[string]*unreadable{}
	r := kv.Range{Prefix: c.Prefix, Limit: 2000}
	for {
		page, err := c.Source.List(ctx, r)
		if err != nil {
			return err
		}
		for _, p := range page.Pairs {
			if e, err := c.entry(p); err == nil {
				tree.ReplaceOrInsert(e)
			} else {
				lost[p.Key] = &unreadable{err: err}
			}
		}
		r.Rev = page.Rev
		if int64(len(page.Pairs)) >= page.Total {
			break
		}
		r.From = page.Pairs[len(page.Pairs)-1].Key + "\x00"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.rev.Load() == 0
	c.offers.clear()
	for key, u := range lost {
		c.logUnreadable(u.err, c.unreadable[key])
	}
	c.tree, c.unreadable, c.history, c.failed = tree, lost, history{floor: r.Rev}, nil
	c.reread.Store(false)
	c.changes.Add(1)
	c.wake()
	for _, l := range c.lookups {
		c.refill(l)
	}
	c.watchers.endAll(ErrReloaded)
	c.advance(r.Rev)
	if first {
		close(c.ready)
	}
	return nil
}

// entry decodes a pair.
func (c *Cache) entry(p kv.Pair) (*Entry, error) {
	obj, err := c.Decode(p)
	if err != nil {
		return nil, err
	}
	return c.hold(p, obj), nil
}

// present is the entry of a pair that was just written: its writer may have offered the object.
func (c *Cache) present(p kv.Pair) (*Entry, error) {
	if obj, ok := c.offers.take(p); ok {
		return c.hold(p, obj), nil
	}
	return c.entry(p)
}

// apply takes one batch of changes into the cache and hands it to the watchers.
func (c *Cache) apply(b kv.Batch) {
	events := make([]*Event, 0, len(b.Changes))
	for _, ch := range b.Changes {
		ev := &Event{Type: Modified, Rev: ch.Rev}
		if ch.Delete {
			ev.Type, ev.Now = Deleted, &Entry{Key: ch.Key, Rev: ch.Rev}
		} else if ev.Now, ev.unreadable = c.present(ch.Pair); ev.unreadable != nil {
			ev.Now = &Entry{Key: ch.Key, Rev: ch.Rev}
		}
		events = append(events, ev)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range events {
		if c.keep(ev) {
			c.changes.Add(1)
			c.history.add(ev)
			c.watchers.dispatch(ev)
		}
	}
	c.failed = nil
	c.advance(b.Rev)
}

// keep brings the tree up to an event and completes the event from it. A deletion of what is not there
// is no event.
func (c *Cache) keep(ev *Event) bool {
	if ev.unreadable != nil {
		c.lose(ev)
		return false
	}
	old, had := c.tree.Get(ev.Now)
	if ev.Prev = c.found(ev.Now.Key, ev.Rev); had {
		ev.Prev = old
	}
	ev.size = ev.Now.size
	switch {
	case ev.Type == Deleted && ev.Prev == nil:
		return false
	case ev.Type == Deleted:
		ev.size = 2 * ev.Prev.size // the last state is a copy
		c.tree.Delete(ev.Now)
		ev.Now = ev.Prev.ended(ev.Rev)
	default:
		if ev.Prev == nil {
			ev.Type = Added
		}
		c.tree.ReplaceOrInsert(ev.Now)
	}
	for _, l := range c.lookups {
		if had {
			l.drop(old)
		}
		if ev.Type != Deleted {
			l.put(ev.Now)
		}
	}
	if c.Index != nil {
		ev.now = c.Index(ev.Now.Outline())
		if ev.Prev != nil {
			ev.previous = c.Index(ev.Prev.Outline())
		}
	}
	return true
}

// Changes is a number that is another one whenever what the cache holds is another.
func (c *Cache) Changes() int64 { return c.changes.Load() }

func (c *Cache) advance(rev int64) {
	if rev <= c.rev.Load() {
		return
	}
	c.rev.Store(rev)
	c.wake()
}

func (c *Cache) wake() {
	if c.waiting > 0 {
		close(c.moved)
		c.moved = make(chan struct{})
	}
}

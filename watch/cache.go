// Package watch is hop 8 of 12: the watch cache. A Cache contains every object of one resource and is fed by one watch
// on the store. It answers GET and LIST, sends changes to watchers, and is what controllers in the same process read.
//
// Its guarantees:
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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// Source is the part of the store that a cache reads from.
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
	// DecodeAll does so for several pairs, in their order, until ctx ends. It is for objects that are decoded by another service, such
	// as a conversion webhook, which is called once for many of them. If it is nil, Decode is called for each pair.
	DecodeAll func(ctx context.Context, pairs []kv.Pair) []kind.Loaded
	// Index returns a value that watchers often select by, such as the node of a Pod. A change is then only matched
	// against the watchers of its value. nil for none.
	Index func(kind.Object) string
	// Outline returns a copy of an object without its large parts. If it is set, the cache keeps objects encoded beside
	// their outlines and decodes an object when it is read; indexes and selections see outlines only. If it is nil, the
	// cache keeps decoded objects.
	Outline func(kind.Object) kind.Object
	// Account, if not nil, is told by how many bytes what is stored under a key has grown or shrunk, and by how many objects. It must
	// be quick.
	Account func(key string, bytes, objects int)
	Log     *slog.Logger
}

// Cache is the state of one resource.
type Cache struct {
	Config

	rev atomic.Int64 // the revision up to which the cache is complete; 0 before the first load
	// changes counts the changes of objects, and the loads of the whole cache.
	changes atomic.Int64
	// rereads counts the calls of Reread.
	rereads atomic.Int64
	ready   chan struct{}

	mu   sync.RWMutex // guards what follows, and orders changes of rev
	tree *btree.BTreeG[*Entry]
	// unreadable has the stored objects that cannot be decoded, by key. They are not in the tree.
	unreadable map[string]*unreadable
	history    history
	watchers   watcherIndex
	indexes    map[string]*objectIndex
	waiters    []*waiter // the calls that wait for a revision
	failed     error     // why the cache cannot be filled at the moment
	// reloads counts how often objects have come that nobody may have written since: when the cache was loaded, or when one could be
	// decoded at last.
	reloads       int64
	reloadPending atomic.Bool // the cache is to be loaded again
	stopFill      context.CancelCauseFunc
	ended         chan struct{} // closed when Run has returned

	offers offers
	lag    lag
}

// New returns an empty cache; Run fills it.
func New(c Config) *Cache {
	return &Cache{
		Config:   c,
		ready:    make(chan struct{}),
		tree:     btree.NewG(32, func(a, b *Entry) bool { return a.Key < b.Key }),
		watchers: newIndex(),
		ended:    make(chan struct{}),
	}
}

// Run keeps the cache filled until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	backoff := wait.Backoff{First: 10 * time.Millisecond, Max: time.Second}
	for ctx.Err() == nil {
		before := c.rev.Load()
		err := c.fill(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errReread) {
			continue
		}
		if c.rev.Load() > before { // the cache has made progress
			backoff.Reset()
		}
		c.Log.WarnContext(ctx, "the watch of a cache ended; resuming it", "prefix", c.Prefix, "err", err)
		c.setFailed(err)
		_ = backoff.Sleep(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accountTree(c.tree, -1)
	close(c.ended)
	c.watchers.endAll(ErrStopped)
}

// setFailed sets why the cache cannot be filled, for those who wait for it; nil when filling is tried again.
func (c *Cache) setFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	c.wake()
}

// fill watches the store from the revision of the cache, or loads all objects if the store no longer has that revision.
func (c *Cache) fill(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if c.beginFill(stop) {
		if err := c.load(ctx); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	// WaitFor requests progress only while failed is nil, and the watch of a resource without changes delivers nothing
	// without that.
	c.setFailed(nil)
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
		if err := c.apply(ctx, batch); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// beginFill reports whether all objects must be loaded first, and stores the function by which Reread stops the watch.
func (c *Cache) beginFill(stop context.CancelCauseFunc) (load bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	load = c.rev.Load() == 0 || c.reloadPending.Load()
	c.stopFill = stop
	return load
}

// load replaces all objects of the cache by those of the store. Watchers are ended, because the changes in between are
// not known.
func (c *Cache) load(ctx context.Context) error {
	rereads, begin := c.rereads.Load(), time.Now()
	tree := btree.NewG(32, func(a, b *Entry) bool { return a.Key < b.Key })
	lost := map[string]*unreadable{}
	r := kv.Range{Prefix: c.Prefix, Limit: 2000}
	for {
		page, err := c.Source.List(ctx, r)
		if err != nil {
			return err
		}
		for i, d := range c.entries(ctx, page.Pairs) {
			if d.err == nil {
				tree.ReplaceOrInsert(d.entry)
			} else {
				lost[page.Pairs[i].Key] = &unreadable{err: d.err}
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
	if err := context.Cause(ctx); err != nil { // Reload has been called: the objects may have to be decoded in another way
		return err
	}
	first := c.rev.Load() == 0
	c.offers.clear()
	for key, u := range lost {
		c.logUnreadable(u.err, c.unreadable[key])
	}
	c.accountTree(c.tree, -1)
	c.accountTree(tree, 1)
	c.tree, c.unreadable, c.history, c.failed = tree, lost, history{floor: r.Rev}, nil
	c.reloadPending.Store(false)
	c.changes.Add(1)
	c.wake()
	for _, l := range c.indexes {
		c.rebuildIndex(l)
	}
	c.reloads++
	c.watchers.endAll(ErrReloaded)
	c.advance(r.Rev)
	c.lag.loaded(begin)
	if first {
		close(c.ready)
	}
	c.rereadIfMissed(rereads)
	return nil
}

// account tells Account that an object has come (1) or gone (-1).
func (c *Cache) account(e *Entry, sign int) {
	if c.Account != nil {
		c.Account(e.Key, sign*e.size, sign)
	}
}

// accountTree does so for all objects of a tree.
func (c *Cache) accountTree(tree *btree.BTreeG[*Entry], sign int) {
	if c.Account != nil {
		tree.Ascend(func(e *Entry) bool { c.account(e, sign); return true })
	}
}

// entry decodes a pair.
func (c *Cache) entry(p kv.Pair) (*Entry, error) {
	obj, err := c.Decode(p)
	if err != nil {
		return nil, err
	}
	return c.newEntry(p, obj), nil
}

// decodedEntry is the entry of a pair, or the reason why the pair cannot be decoded.
type decodedEntry struct {
	entry *Entry
	err   error
}

// decodedAlone is how many pairs are decoded by one goroutine; more are shared out over the processors.
const decodedAlone = 64

// entries decodes pairs, in their order.
func (c *Cache) entries(ctx context.Context, pairs []kv.Pair) []decodedEntry {
	out := make([]decodedEntry, len(pairs))
	if c.DecodeAll != nil && len(pairs) > 0 {
		for i, l := range c.DecodeAll(ctx, pairs) {
			if out[i].err = l.Err; l.Err == nil {
				out[i].entry = c.newEntry(pairs[i], l.Object)
			}
		}
		return out
	}
	decode := func(from, to int) {
		for i := from; i < to; i++ {
			out[i].entry, out[i].err = c.entry(pairs[i])
		}
	}
	var wg sync.WaitGroup
	part := max(decodedAlone, (len(pairs)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := part; from < len(pairs); from += part {
		wg.Go(func() { decode(from, min(from+part, len(pairs))) })
	}
	decode(0, min(part, len(pairs)))
	wg.Wait()
	return out
}

// maxApplied is how many changes are applied at once. Readers wait for a revision, so that a long batch must not make all
// of them wait for its end; and watchers and readers wait while the cache is locked.
const maxApplied = 512

// apply applies a batch of changes to the cache and sends it to the watchers.
func (c *Cache) apply(ctx context.Context, b kv.Batch) error {
	for len(b.Changes) > maxApplied {
		n := maxApplied
		for n < len(b.Changes) && b.Changes[n].Rev == b.Changes[n-1].Rev { // the changes of a revision are seen together
			n++
		}
		if n == len(b.Changes) {
			break
		}
		if err := c.applyPart(ctx, kv.Batch{Changes: b.Changes[:n], Rev: b.Changes[n-1].Rev}); err != nil {
			return err
		}
		b.Changes = b.Changes[n:]
	}
	return c.applyPart(ctx, b)
}

// applyPart applies some changes under one lock. If ctx ends before they are decoded, it applies none: the cache reads them again.
func (c *Cache) applyPart(ctx context.Context, b kv.Batch) error {
	rereads := c.rereads.Load()
	events := c.events(ctx, b.Changes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, ev := range events {
		if c.applyEvent(ev) {
			c.changes.Add(1)
			c.history.add(ev)
			c.watchers.dispatch(ev)
		}
	}
	c.failed = nil
	c.advance(b.Rev)
	c.rereadIfMissed(rereads)
	return nil
}

// events returns the changes as events with decoded objects, in their order. An object that its writer has offered is not decoded
// again.
func (c *Cache) events(ctx context.Context, changes []kv.Change) []*Event {
	out := make([]*Event, len(changes))
	var pairs []kv.Pair
	var decoded []*Event // for the pairs
	for i := range changes {
		ch := &changes[i]
		ev := &Event{Type: Modified, Rev: ch.Rev, Now: &Entry{Key: ch.Key, Rev: ch.Rev}}
		out[i] = ev
		if ch.Delete {
			ev.Type = Deleted
		} else if obj, ok := c.offers.take(ch.Pair); ok {
			ev.Now = c.newEntry(ch.Pair, obj)
		} else {
			pairs, decoded = append(pairs, ch.Pair), append(decoded, ev)
		}
	}
	for i, d := range c.entries(ctx, pairs) {
		if decoded[i].unreadable = d.err; d.err == nil {
			decoded[i].Now = d.entry
		}
	}
	return out
}

// applyEvent applies an event to the tree and fills in the previous state of the object. It returns false if there is
// nothing to send to watchers, as for the deletion of an object that the cache does not have.
func (c *Cache) applyEvent(ev *Event) bool {
	if ev.unreadable != nil {
		c.removeUnreadable(ev)
		return false
	}
	old, had := c.tree.Get(ev.Now)
	if ev.Prev = c.forgetUnreadable(ev.Now.Key, ev.Rev); had {
		ev.Prev = old
	}
	ev.size = ev.Now.size
	if had {
		c.account(old, -1)
	}
	if ev.Type != Deleted {
		c.account(ev.Now, 1)
	}
	switch {
	case ev.Type == Deleted && ev.Prev == nil:
		return false
	case ev.Type == Deleted:
		ev.size = 2 * ev.Prev.size // the previous and the last state
		c.tree.Delete(ev.Now)
		ev.Now = ev.Prev.deletedAt(ev.Rev)
	default:
		if ev.Prev == nil {
			ev.Type = Added
		}
		c.tree.ReplaceOrInsert(ev.Now)
	}
	for _, l := range c.indexes {
		if had {
			l.remove(old)
		}
		if ev.Type != Deleted {
			l.add(ev.Now)
		}
	}
	if c.Index != nil {
		ev.indexValue = c.Index(ev.Now.Outline())
		if ev.Prev != nil {
			ev.previousIndexValue = c.Index(ev.Prev.Outline())
		}
	}
	return true
}

// Changes returns a number that changes whenever the content of the cache changes.
func (c *Cache) Changes() int64 { return c.changes.Load() }

func (c *Cache) advance(rev int64) {
	if rev <= c.rev.Load() {
		return
	}
	c.rev.Store(rev)
	c.wake()
}

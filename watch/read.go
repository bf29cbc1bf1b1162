package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"proa.dev/kinds/kind"
)

// TooNew is the error of a read at a revision that the cache has not reached in time.
type TooNew struct{ Asked, Have int64 }

func (e *TooNew) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Asked, e.Have)
}

// revisionTimeout is the timeout of a read that waits for the cache to reach a revision.
const revisionTimeout = 3 * time.Second

// Rev returns the revision up to which the cache is complete.
func (c *Cache) Rev() int64 { return c.rev.Load() }

// WaitUntilFresh waits until the cache contains every write that was acknowledged before the call.
func (c *Cache) WaitUntilFresh(ctx context.Context) error { return c.FreshWithin(ctx, revisionTimeout) }

// FreshWithin is WaitUntilFresh with a timeout, after which it returns a TooNew.
func (c *Cache) FreshWithin(ctx context.Context, timeout time.Duration) error {
	if err := c.loaded(ctx); err != nil {
		return err
	}
	rev, err := c.Source.Fresh(ctx, c.Prefix)
	if err != nil {
		return err
	}
	return c.waitFor(ctx, rev, timeout)
}

func (c *Cache) loaded(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	default:
	}
	wait, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	select {
	case <-c.ready:
		return nil
	case <-c.ended:
		return ErrStopped
	case <-wait.Done():
		c.mu.RLock()
		defer c.mu.RUnlock()
		if c.failed != nil {
			return c.failed
		}
		return wait.Err()
	}
}

// WaitFor waits until the cache is complete up to rev.
func (c *Cache) WaitFor(ctx context.Context, rev int64) error {
	return c.waitFor(ctx, rev, revisionTimeout)
}

func (c *Cache) waitFor(ctx context.Context, rev int64, timeout time.Duration) error {
	if err := c.loaded(ctx); err != nil {
		return err
	}
	if c.reached(rev) {
		return nil
	}
	// The revision may be a change outside of the prefix; then the watch delivers nothing until it is asked for its
	// progress. That is done after a moment only, because nearly always the change itself is about to arrive.
	progress := time.NewTimer(2 * time.Millisecond)
	defer progress.Stop()
	wait, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	err := c.await(wait, rev, progress)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return &TooNew{Asked: rev, Have: c.rev.Load()}
	}
	return err
}

// waiter waits for a revision of the cache.
type waiter struct {
	rev  int64
	err  error // why the cache cannot be filled; set before done is closed
	done chan struct{}
}

// await waits until the cache is complete up to rev, cannot be filled, or ctx ends. Whenever the timer progress fires, if there is
// one, it asks the store for the progress of the watch.
func (c *Cache) await(ctx context.Context, rev int64, progress *time.Timer) error {
	w := &waiter{rev: rev, done: make(chan struct{})}
	c.mu.Lock()
	if c.failed != nil || c.reached(rev) {
		defer c.mu.Unlock()
		if c.reached(rev) {
			return nil
		}
		return c.failed
	}
	c.waiters = append(c.waiters, w)
	c.mu.Unlock()
	defer c.leave(w)
	var late <-chan time.Time
	if progress != nil {
		late = progress.C
	}
	for {
		select {
		case <-w.done:
			return w.err
		case <-c.ended:
			return ErrStopped
		case <-late:
			if err := c.Source.Progress(ctx); err != nil {
				return err
			}
			progress.Reset(50 * time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave removes a waiter that wake has not removed.
func (c *Cache) leave(w *waiter) {
	select {
	case <-w.done:
		return
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiters = slices.DeleteFunc(c.waiters, func(x *waiter) bool { return x == w })
}

// wake ends the waiting of those whose revision the cache has reached; of all if it cannot be filled. The caller holds mu.
func (c *Cache) wake() {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		reached := c.reached(w.rev)
		if !reached && c.failed == nil {
			return false
		}
		if !reached {
			w.err = c.failed
		}
		close(w.done)
		return true
	})
}

// reached reports whether the cache is complete up to rev, and is not about to be loaded again.
func (c *Cache) reached(rev int64) bool { return c.rev.Load() >= rev && !c.reloadPending.Load() }

// Get returns the entry under a key.
func (c *Cache) Get(key string) (*Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tree.Get(&Entry{Key: key})
}

// Size returns how many bytes an object has in the store, if the cache has the object at that revision.
func (c *Cache) Size(key string, rev int64) (int, bool) {
	e, ok := c.Get(key)
	if !ok || e.Rev != rev {
		return 0, false
	}
	return e.size, true
}

// List returns the entries with a prefix that keep accepts, in the order of their keys, and the revision of the list.
// keep is called with the lock of the cache held, so it must be fast; nil accepts all entries.
func (c *Cache) List(prefix string, keep func(kind.Object) bool) ([]*Entry, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.list(prefix, keep), c.rev.Load()
}

func (c *Cache) list(prefix string, keep func(kind.Object) bool) []*Entry {
	var out []*Entry
	if keep == nil && prefix == c.Prefix {
		out = make([]*Entry, 0, c.tree.Len())
	}
	c.tree.AscendGreaterOrEqual(&Entry{Key: prefix}, func(e *Entry) bool {
		if !strings.HasPrefix(e.Key, prefix) {
			return false
		}
		if keep == nil || keep(e.Outline()) {
			out = append(out, e)
		}
		return true
	})
	return out
}

// Len returns the number of objects.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tree.Len()
}

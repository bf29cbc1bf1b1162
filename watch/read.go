package watch

import (
	"context"
	"fmt"
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
	wait, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	// The revision may be a change outside of the prefix; then the watch delivers nothing until it is asked for its
	// progress. That is done after a moment only, because nearly always the change itself is about to arrive.
	progress := time.NewTimer(2 * time.Millisecond)
	defer progress.Stop()
	c.mu.Lock()
	c.waiting++
	defer func() {
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
	}()
	for !c.reached(rev) {
		moved, failed := c.advanced, c.failed
		c.mu.Unlock()
		if failed != nil {
			return failed
		}
		select {
		case <-moved:
		case <-c.ended:
			return ErrStopped
		case <-progress.C:
			if err := c.Source.Progress(wait); err != nil {
				return err
			}
			progress.Reset(50 * time.Millisecond)
		case <-wait.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &TooNew{Asked: rev, Have: c.rev.Load()}
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return nil
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

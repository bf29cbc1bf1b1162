package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"proa.dev/kv"
)

// watch is a call of Watch under way. The lock of the store guards all but wake.
type watch struct {
	prefix string
	after  int64
	// queue has the changes that were not told yet. A commit puts them here itself, so that a watch is woken only for
	// what it covers.
	queue []kv.Change
	// err ends the watch.
	err error
	// wake says that there is something to look at. It has room for one word, so that none is lost.
	wake chan struct{}
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// add takes the changes that the watch covers.
func (w *watch) add(changes []kv.Change) {
	if w.err != nil {
		return
	}
	before := len(w.queue)
	for i := range changes {
		if c := &changes[i]; c.Rev > w.after && strings.HasPrefix(c.Key, w.prefix) {
			w.queue = append(w.queue, *c)
		}
	}
	if len(w.queue) > before {
		w.poke()
	}
}

// forget ends the watch when it still has to tell what is forgotten: a change before the revision, or what a change at it
// has replaced. A reader who is that late has to start anew, and costs no memory until it notices.
func (w *watch) forget(compacted int64) {
	for i := range w.queue {
		c := &w.queue[i]
		if c.Rev < compacted || c.Rev == compacted && c.Prev.Rev != 0 {
			w.err = fmt.Errorf("%w: the change of %s at %d", kv.ErrCompacted, c.Key, c.Rev)
			w.queue = nil
			w.poke()
			return
		}
		if c.Rev > compacted {
			return
		}
	}
}

// Watch yields every change of keys with the prefix after the revision. It runs on the goroutine of its caller and ends
// silently with ctx. An error is the last thing it yields: kv.ErrCompacted when the changes are no longer kept,
// kv.ErrUnavailable when the store was closed.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if err := s.follow(ctx, prefix, after, yield); err != nil && ctx.Err() == nil {
			yield(kv.Batch{}, err)
		}
	}
}

func (s *Store) follow(ctx context.Context, prefix string, after int64, yield func(kv.Batch, error) bool) error {
	w := &watch{prefix: prefix, after: max(after, 0), wake: make(chan struct{}, 1)}
	if err := s.join(ctx, w); err != nil {
		return err
	}
	defer s.leave(w)
	for last := w.after; ; {
		b, err := s.take(w)
		if err != nil {
			return err
		}
		if len(b.Changes) > 0 || b.Rev > last {
			last = b.Rev
			if !yield(b, nil) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// join starts a watch: what it missed comes from the log, everything after that from those who change keys.
func (s *Store) join(ctx context.Context, w *watch) error {
	if err := s.write(ctx, "watch", w.prefix); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if w.after+1 < s.compacted {
		return about("watch", w.prefix, kv.ErrCompacted)
	}
	w.add(s.log[s.since(w.after+1):])
	w.forget(s.compacted)
	s.watches = append(s.watches, w)
	return nil
}

// since returns the index of the first change in the log at a revision or after it.
func (s *Store) since(rev int64) int {
	n, _ := slices.BinarySearchFunc(s.log, rev, func(c kv.Change, rev int64) int { return cmp.Compare(c.Rev, rev) })
	return n
}

func (s *Store) leave(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.Index(s.watches, w)
	s.watches = slices.Delete(s.watches, n, n+1)
}

// take returns what the watch has to tell. The queue has all that happened up to the present revision.
func (s *Store) take(w *watch) (kv.Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return kv.Batch{}, unavailable("watch", w.prefix, errClosed)
	case w.err != nil:
		return kv.Batch{}, about("watch", w.prefix, w.err)
	}
	b := kv.Batch{Changes: w.queue, Rev: s.rev}
	w.queue = nil
	return b, nil
}

// Progress asks that every watch soon yields a batch whose Rev is at least the present revision. It does not wait for them.
func (s *Store) Progress(ctx context.Context) error {
	if err := s.read(ctx, "progress", ""); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	for _, w := range s.watches {
		w.poke()
	}
	return nil
}

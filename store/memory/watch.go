package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"proa.dev/internal/wait"
	"proa.dev/kv"
)

// watch is a call of Watch. The lock of the store guards all fields but wake.
type watch struct {
	prefix string
	after  int64
	// queue has the changes that were not delivered yet. Commit adds the changes that the watch covers, so a watch is
	// woken only for these.
	queue []kv.Change
	// err ends the watch.
	err error
	// wake is sent when the watch has something to deliver, or has to end.
	wake wait.Signal
}

// add queues those of the changes that the watch covers.
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
		w.wake.Send()
	}
}

// forget ends the watch if a queued change is compacted: a change before the revision, or a change at it that has a
// previous pair. The reader has to start again; its queue is freed at once.
func (w *watch) forget(compacted int64) {
	for i := range w.queue {
		c := &w.queue[i]
		if c.Rev < compacted || c.Rev == compacted && c.Prev.Rev != 0 {
			w.err = fmt.Errorf("%w: the change of %s at %d", kv.ErrCompacted, c.Key, c.Rev)
			w.queue = nil
			w.wake.Send()
			return
		}
		if c.Rev > compacted {
			return
		}
	}
}

// Watch yields every change of keys with the prefix after the revision. It runs on the goroutine of its caller and ends
// silently with ctx. An error is the last value that it yields: kv.ErrCompacted if the changes are no longer kept,
// kv.ErrUnavailable if the store was closed.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if err := s.follow(ctx, prefix, after, yield); err != nil && ctx.Err() == nil {
			yield(kv.Batch{}, err)
		}
	}
}

func (s *Store) follow(ctx context.Context, prefix string, after int64, yield func(kv.Batch, error) bool) error {
	w := &watch{prefix: prefix, after: max(after, 0), wake: wait.NewSignal()}
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

// join starts a watch: past changes are queued from the log, later ones are queued when they are made.
func (s *Store) join(ctx context.Context, w *watch) error {
	if err := s.write(ctx, "watch", w.prefix); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if w.after+1 < s.compacted {
		return withOperation("watch", w.prefix, kv.ErrCompacted)
	}
	w.add(s.log[s.since(w.after+1):])
	w.forget(s.compacted)
	s.watches = append(s.watches, w)
	return nil
}

// since returns the index of the first change in the log at or after a revision.
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

// take returns the queued changes of a watch, which are complete up to the current revision.
func (s *Store) take(w *watch) (kv.Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return kv.Batch{}, unavailable("watch", w.prefix, errClosed)
	case w.err != nil:
		return kv.Batch{}, withOperation("watch", w.prefix, w.err)
	}
	b := kv.Batch{Changes: w.queue, Rev: s.rev}
	w.queue = nil
	return b, nil
}

// Progress requests that every watch soon yields a batch whose Rev is at least the current revision. It does not wait
// for that.
func (s *Store) Progress(ctx context.Context) error {
	if err := s.read(ctx, "progress", ""); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	for _, w := range s.watches {
		w.wake.Send()
	}
	return nil
}

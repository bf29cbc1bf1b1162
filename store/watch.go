package store

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"proa.dev/internal/wait"
	"proa.dev/kv"
)

// stream is one watch of a member, which delivers all changes after a revision in order.
type stream interface {
	// next waits for events. It returns without any when wake is received from.
	next(ctx context.Context, wake <-chan struct{}) (eventBatch, error)
	// complete adds the previous pairs to the events, unless the stream has them already. The store is not closed
	// meanwhile.
	complete(ctx context.Context, n eventBatch) error
	// ask requests a progress notification. The member may ignore that, for instance while it still delivers past
	// changes.
	ask(ctx context.Context)
	close()
}

// eventBatch has all events up to rev that a stream has not delivered before.
type eventBatch struct {
	events []*mvccpb.Event
	rev    int64
}

// watch is a call of Watch.
type watch struct {
	wake wait.Signal
}

// askAgain and maxAskAgain bound the back-off after which a watch repeats a progress request that was not answered.
const (
	askAgain    = 10 * time.Millisecond
	maxAskAgain = 250 * time.Millisecond
)

// Watch yields every change of keys with the prefix after the revision. It runs on the goroutine of its caller and ends
// silently with ctx. An error is the last value that it yields: kv.ErrCompacted if the changes are no longer kept,
// kv.ErrUnavailable if the store was closed. A broken connection is no error; the watch is resumed at its revision.
func (e *Etcd) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if err := e.follow(ctx, prefix, after, yield); err != nil && ctx.Err() == nil {
			yield(kv.Batch{}, wrapError("watch", prefix, err))
		}
	}
}

func (e *Etcd) follow(ctx context.Context, prefix string, after int64, yield func(kv.Batch, error) bool) error {
	w := &watch{wake: wait.NewSignal()}
	s, err := e.openStream(ctx, w, prefix, after)
	if err != nil {
		return err
	}
	defer e.closeStream(w, s)
	again := time.AfterFunc(time.Hour, w.wake.Send)
	defer again.Stop()

	last, backoff := after, wait.Backoff{First: askAgain, Max: maxAskAgain}
	for {
		// The watch was added to e.watches before this, so a call of Progress is either noticed here or wakes the
		// watch.
		if e.wanted.Load() > last {
			s.ask(ctx)
			again.Reset(backoff.Next())
		}
		n, err := s.next(ctx, w.wake)
		if err != nil {
			return err
		}
		if err := e.complete(ctx, s, n); err != nil {
			return err
		}
		b, err := batchOf(n)
		if err != nil {
			return err
		}
		if len(b.Changes) > 0 || b.Rev > last {
			last = b.Rev
			backoff.Reset()
			if !yield(b, nil) {
				return nil
			}
		}
	}
}

func (e *Etcd) openStream(ctx context.Context, w *watch, prefix string, after int64) (stream, error) {
	if e.hook != nil {
		if err := e.hook("watch", prefix); err != nil {
			return nil, unavailable{err}
		}
	}
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return nil, unavailable{errClosed}
	}
	s, err := e.member.open(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	e.watching.Lock()
	e.watches[w] = struct{}{}
	e.watching.Unlock()
	return s, nil
}

func (e *Etcd) closeStream(w *watch, s stream) {
	e.watching.Lock()
	delete(e.watches, w)
	e.watching.Unlock()
	s.close()
}

func (e *Etcd) complete(ctx context.Context, s stream, n eventBatch) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return unavailable{errClosed}
	}
	return s.complete(ctx, n)
}

// Progress requests that every watch, including those that begin later, soon yields a batch whose Rev is at least the
// current revision. It does not wait for that. etcd ignores a progress request while a watch is behind, so each watch
// repeats the request until it has reached the revision.
func (e *Etcd) Progress(ctx context.Context) error {
	ctx, end, err := e.begin(ctx, "progress", "")
	if err != nil {
		return err
	}
	defer end()
	rev, err := e.member.revision(ctx)
	if err != nil {
		return wrapError("progress", "", err)
	}
	raise(&e.wanted, rev)
	e.wakeWatches()
	return nil
}

// wakeWatches makes every watch check whether it was asked for progress or the store was closed.
func (e *Etcd) wakeWatches() {
	e.watching.Lock()
	defer e.watching.Unlock()
	for w := range e.watches {
		w.wake.Send()
	}
}

// batchOf translates events. etcd omits the previous pair of a change if it has been compacted since; the watcher then
// has to start again, because it cannot know what the change replaced.
func batchOf(n eventBatch) (kv.Batch, error) {
	b := kv.Batch{Rev: n.rev}
	if len(n.events) == 0 {
		return b, nil
	}
	b.Changes = make([]kv.Change, len(n.events))
	for i, ev := range n.events {
		c := &b.Changes[i]
		c.Pair = pairOf(ev.Kv)
		if ev.Type == mvccpb.Event_DELETE {
			c.Delete, c.Value = true, nil
		}
		switch {
		case ev.PrevKv != nil:
			c.Prev = pairOf(ev.PrevKv)
		case !isCreate(ev):
			return kv.Batch{}, fmt.Errorf("%w: what the change of %s at %d replaced", kv.ErrCompacted, ev.Kv.Key, ev.Kv.ModRevision)
		}
		b.Rev = max(b.Rev, c.Rev)
	}
	return b, nil
}

// isCreate reports whether the key did not exist before the event.
func isCreate(ev *mvccpb.Event) bool {
	return ev.Type == mvccpb.Event_PUT && ev.Kv.CreateRevision == ev.Kv.ModRevision
}

package store

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"proa.dev/kv"
)

// stream is one watch of a member, with all its changes in order from some revision on.
type stream interface {
	// next waits for news. It returns without any when wake is signalled.
	next(ctx context.Context, wake <-chan struct{}) (news, error)
	// complete adds to the news what the events replaced, where the stream did not do so by itself. The
	// store is not closed meanwhile.
	complete(ctx context.Context, n news) error
	// ask requests news about the present revision. The member may ignore it, for instance because it is
	// still busy with changes of the past.
	ask(ctx context.Context)
	close()
}

// news is what a stream has to tell: all events up to rev that it has not told before.
type news struct {
	events []*mvccpb.Event
	rev    int64
}

// watch is a call of Watch under way.
type watch struct {
	wake chan struct{}
}

// A watch that has got no answer about its progress asks again after a time between these.
const (
	askAgain    = 10 * time.Millisecond
	maxAskAgain = 250 * time.Millisecond
)

// poke wakes the goroutine that runs the watch.
func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch yields every change of keys with the prefix after the revision. It runs on the goroutine of its
// caller and ends silently with ctx. An error is the last thing it yields: kv.ErrCompacted when the
// changes are no longer kept, kv.ErrUnavailable when the store was closed. A connection that breaks is no
// error; the watch resumes where it was.
func (e *Etcd) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if err := e.follow(ctx, prefix, after, yield); err != nil && ctx.Err() == nil {
			yield(kv.Batch{}, fail("watch", prefix, err))
		}
	}
}

func (e *Etcd) follow(ctx context.Context, prefix string, after int64, yield func(kv.Batch, error) bool) error {
	w := &watch{wake: make(chan struct{}, 1)}
	s, err := e.openStream(ctx, w, prefix, after)
	if err != nil {
		return err
	}
	defer e.closeStream(w, s)
	again := time.AfterFunc(time.Hour, w.poke)
	defer again.Stop()

	last, pause := after, askAgain
	for {
		// This comes after the watch can be found, so that whoever asked has either been heard here or wakes it.
		if e.wanted.Load() > last {
			s.ask(ctx)
			again.Reset(pause)
			pause = min(2*pause, maxAskAgain)
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
			last, pause = b.Rev, askAgain
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

func (e *Etcd) complete(ctx context.Context, s stream, n news) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return unavailable{errClosed}
	}
	return s.complete(ctx, n)
}

// Progress asks that every watch, and every one that begins later, soon yields a batch whose Rev is at least the present
// revision. It does not wait for them. etcd drops such a request while a watch is behind, so each watch repeats it until it got there.
func (e *Etcd) Progress(ctx context.Context) error {
	ctx, end, err := e.begin(ctx, "progress", "")
	if err != nil {
		return err
	}
	defer end()
	rev, err := e.member.revision(ctx)
	if err != nil {
		return fail("progress", "", err)
	}
	raise(&e.wanted, rev)
	e.wakeWatches()
	return nil
}

// wakeWatches makes every watch look at the state of the store.
func (e *Etcd) wakeWatches() {
	e.watching.Lock()
	defer e.watching.Unlock()
	for w := range e.watches {
		w.poke()
	}
}

// batchOf translates news. etcd leaves out the pair before a change when it has been compacted since; the
// watcher then has to start anew, since it cannot know what the change replaced.
func batchOf(n news) (kv.Batch, error) {
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

// isCreate says that the key did not exist before the event.
func isCreate(ev *mvccpb.Event) bool {
	return ev.Type == mvccpb.Event_PUT && ev.Kv.CreateRevision == ev.Kv.ModRevision
}

package storetest

import (
	"context"
	"fmt"
	"reflect"

	"proa.dev/kv"
)

// follower reads from a watch. It also checks that revisions never decrease, and that no revision is split over two batches.
type follower struct {
	b      *bench
	cancel context.CancelFunc
	in     chan received
	done   chan struct{}
	queue  []kv.Change
	rev    int64
}

type received struct {
	batch kv.Batch
	err   error
}

// follow starts a watch and a goroutine that reads it.
func (b *bench) follow(prefix string, after int64) *follower {
	ctx, cancel := context.WithCancel(b.ctx)
	f := &follower{b: b, cancel: cancel, in: make(chan received, 1<<16), done: make(chan struct{}), rev: after}
	go func() {
		defer close(f.done)
		defer close(f.in)
		for batch, err := range b.s.Watch(ctx, prefix, after) {
			f.in <- received{batch, err}
		}
	}()
	b.Cleanup(f.stop)
	return f
}

// stop ends the watch and waits for it.
func (f *follower) stop() {
	f.cancel()
	<-f.done
}

// batch waits for the next batch.
func (f *follower) batch() kv.Batch {
	f.b.Helper()
	a, ok := <-f.in
	switch {
	case !ok:
		f.b.Fatalf("the watch ended: %v", f.b.ctx.Err())
	case a.err != nil:
		f.b.Fatalf("the watch failed: %v", a.err)
	}
	f.check(a.batch)
	return a.batch
}

func (f *follower) check(batch kv.Batch) {
	f.b.Helper()
	last := f.rev
	for i, c := range batch.Changes {
		switch {
		case c.Rev <= f.rev:
			f.b.Fatalf("a change at %d after a batch that ended at %d: %s", c.Rev, f.rev, showChange(c))
		case c.Rev < last:
			f.b.Fatalf("change %d of a batch goes back from %d: %s", i, last, showChange(c))
		case c.Prev.Rev >= c.Rev:
			f.b.Fatalf("a change replaces a later one: %s", showChange(c))
		}
		last = c.Rev
	}
	switch {
	case batch.Rev < last:
		f.b.Fatalf("a batch of revision %d with a change at %d", batch.Rev, last)
	case len(batch.Changes) == 0 && batch.Rev < f.rev:
		f.b.Fatalf("progress went back from %d to %d", f.rev, batch.Rev)
	}
	f.rev = batch.Rev
}

// next waits for the next change.
func (f *follower) next() kv.Change {
	f.b.Helper()
	for len(f.queue) == 0 {
		f.queue = f.batch().Changes
	}
	c := f.queue[0]
	f.queue = f.queue[1:]
	return c
}

// want waits for as many changes and compares them.
func (f *follower) want(changes ...kv.Change) {
	f.b.Helper()
	for _, want := range changes {
		if got := f.next(); !reflect.DeepEqual(got, want) {
			f.b.Fatalf("got %s, want %s", showChange(got), showChange(want))
		}
	}
}

// reach waits until the watch has reached a revision, without any change.
func (f *follower) reach(rev int64) {
	f.b.Helper()
	for f.rev < rev {
		if b := f.batch(); len(b.Changes) > 0 {
			f.b.Fatalf("unexpected %s", showChange(b.Changes[0]))
		}
	}
}

// fails waits for the error that ends the watch.
func (f *follower) fails(want error) {
	f.b.Helper()
	for a := range f.in {
		if a.err != nil {
			f.b.wantErr(a.err, want)
			if _, more := <-f.in; more {
				f.b.Fatal("the watch goes on after an error")
			}
			return
		}
	}
	f.b.Fatalf("the watch ended without an error, want %v", want)
}

func put(key, value string, rev int64) kv.Change {
	return kv.Change{Pair: kv.Pair{Key: key, Value: []byte(value), Rev: rev}}
}

func update(key, value string, rev int64, prev string, prevRev int64) kv.Change {
	c := put(key, value, rev)
	c.Prev = kv.Pair{Key: key, Value: []byte(prev), Rev: prevRev}
	return c
}

func remove(key string, rev int64, prev string, prevRev int64) kv.Change {
	return kv.Change{
		Pair:   kv.Pair{Key: key, Rev: rev},
		Prev:   kv.Pair{Key: key, Value: []byte(prev), Rev: prevRev},
		Delete: true,
	}
}

func showChange(c kv.Change) string {
	verb := "put"
	if c.Delete {
		verb = "delete"
	}
	return fmt.Sprintf("%s %s (was %s)", verb, show(c.Pair), show(c.Prev))
}

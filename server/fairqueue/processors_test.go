package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// computing counts what requests of a test do in virtual time.
type computing struct {
	*Processors
	now, most atomic.Int64 // requests that compute, and the maximum so far
}

// compute lets a request of a user compute for a time, and returns how long it had to wait.
func (c *computing) compute(ctx context.Context, user string, d time.Duration) (waited time.Duration, err error) {
	w := c.For(user)
	start := time.Now()
	if err := w.Begin(ctx); err != nil {
		return 0, err
	}
	waited = time.Since(start)
	n := c.now.Add(1)
	for old := c.most.Load(); n > old && !c.most.CompareAndSwap(old, n); old = c.most.Load() {
	}
	time.Sleep(d)
	c.now.Add(-1)
	w.End()
	return waited, nil
}

// flood has n requests of a user compute repeatedly, each time for d, until ctx ends. It returns how often they did.
func (c *computing) flood(ctx context.Context, all *sync.WaitGroup, user string, n int, d time.Duration) *atomic.Int64 {
	var count atomic.Int64
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.compute(ctx, user, d); err == nil {
					count.Add(1)
				}
			}
		})
	}
	return &count
}

// TestQuietUserDoesNotWait has a user with 200 concurrent requests beside one who has one at a time and needs less than
// its share.
func TestQuietUserDoesNotWait(t *testing.T) {
	for _, processors := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &computing{Processors: NewProcessors(processors)}
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				defer all.Wait()
				defer stop()
				loud := c.flood(ctx, &all, "loud", 200, 2*time.Millisecond)
				time.Sleep(time.Second)
				c.most.Store(0)
				before := loud.Load()
				for i := range 200 {
					waited, err := c.compute(ctx, "quiet", 500*time.Microsecond)
					if err != nil || waited != 0 {
						t.Fatalf("request %d waited %s, %v", i, waited, err)
					}
					time.Sleep(2 * time.Millisecond)
				}
				// In addition to the slots there are the quiet user's request, and one of the loud user while that is
				// light. One CPU is left to the rest of the process when there is a second.
				if most, limit := c.most.Load(), int64(max(1, processors-1)+2); most > limit {
					t.Errorf("%d requests computed at the same time, want %d at most", most, limit)
				}
				if got := loud.Load() - before; got < 240 {
					t.Errorf("the loud user was served %d times in half a second, and there was always room for one", got)
				}
				stop()
				all.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.taken != 0 || len(c.queue) != 0 {
					t.Errorf("%d slots are taken and %d users wait after the end", c.taken, len(c.queue))
				}
			})
		})
	}
}

// TestHeavyUsersShare checks that of two users who both want all CPUs, one with many requests gets no more than one
// with few.
func TestHeavyUsersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &computing{Processors: NewProcessors(2)}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		many := c.flood(ctx, &all, "many", 100, time.Millisecond)
		few := c.flood(ctx, &all, "few", 3, 5*time.Millisecond)
		time.Sleep(10 * time.Second)
		stop()
		all.Wait()
		a, b := time.Duration(many.Load())*time.Millisecond, time.Duration(few.Load())*5*time.Millisecond
		if ratio := a.Seconds() / b.Seconds(); ratio < 0.8 || ratio > 1.25 {
			t.Errorf("the user with many requests computed for %s, the one with few for %s", a, b)
		}
	})
}

// TestStuckTurn checks that a turn which does not end delays others only briefly, and that a cancelled request stops
// waiting.
func TestStuckTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(1)
		turns := []Work{p.For("a"), p.For("a")} // the first is of a light user
		for i := range turns {
			if err := turns[i].Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), stuckTimeout/2)
		defer cancel()
		late := p.For("a")
		if err := late.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		late.End() // does nothing
		patient, cancel := context.WithTimeout(t.Context(), 10*stuckTimeout)
		defer cancel()
		start := time.Now()
		if err := late.Begin(patient); err != nil || time.Since(start) != stuckTimeout {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		late.End()
		late.End()
		for i := range turns {
			turns[i].End()
		}
		if p.taken != 0 || len(p.queue) != 0 {
			t.Errorf("%d slots are taken and %d users wait after the end", p.taken, len(p.queue))
		}
		time.Sleep(idleTimeout + 2*time.Second)
		var nobody *Work
		other := p.For("b")
		if err := errors.Join(other.Begin(t.Context()), nobody.Begin(t.Context()), (&Work{}).Begin(t.Context())); err != nil {
			t.Error(err)
		}
		other.End()
		nobody.End()
		if len(p.users) != 1 {
			t.Errorf("%d users are remembered", len(p.users))
		}
	})
}

func BenchmarkWork(b *testing.B) {
	p := NewProcessors(2)
	b.ReportAllocs()
	for b.Loop() {
		w := p.For("alice")
		if err := w.Begin(b.Context()); err != nil {
			b.Fatal(err)
		}
		w.End()
	}
}

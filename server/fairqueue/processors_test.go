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

// processorTest counts the requests of a test that compute, in virtual time.
type processorTest struct {
	*Processors
	now, maximum atomic.Int64 // requests that compute, and the maximum so far
}

// compute makes a request of a user compute for d, and returns how long it had to wait.
func (c *processorTest) compute(ctx context.Context, user string, d time.Duration) (waited time.Duration, err error) {
	w := c.For(user)
	start := time.Now()
	if err := w.Begin(ctx); err != nil {
		return 0, err
	}
	waited = time.Since(start)
	n := c.now.Add(1)
	for old := c.maximum.Load(); n > old && !c.maximum.CompareAndSwap(old, n); old = c.maximum.Load() {
	}
	time.Sleep(d)
	c.now.Add(-1)
	w.End()
	return waited, nil
}

// flood makes n requests of a user compute repeatedly, each time for d, until ctx ends. It returns how often they did.
func (c *processorTest) flood(ctx context.Context, all *sync.WaitGroup, user string, n int, d time.Duration) *atomic.Int64 {
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

// TestLightUserDoesNotWait checks that a user with one request at a time, who needs less than its share, does not wait
// beside a user with 200 concurrent requests.
func TestLightUserDoesNotWait(t *testing.T) {
	for _, processors := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &processorTest{Processors: NewProcessors(processors)}
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				defer all.Wait()
				defer stop()
				heavy := c.flood(ctx, &all, "heavy", 200, 2*time.Millisecond)
				time.Sleep(time.Second)
				c.maximum.Store(0)
				before := heavy.Load()
				for i := range 200 {
					waited, err := c.compute(ctx, "light", 500*time.Microsecond)
					if err != nil || waited != 0 {
						t.Fatalf("request %d waited %s, %v", i, waited, err)
					}
					time.Sleep(2 * time.Millisecond)
				}
				// In addition to the slots, the light user's request runs, and one of the heavy user as long as that counts as
				// light. One CPU is left to the rest of the process if there are at least two.
				if maximum, limit := c.maximum.Load(), int64(max(1, processors-1)+2); maximum > limit {
					t.Errorf("%d requests computed at the same time, want %d at most", maximum, limit)
				}
				if got := heavy.Load() - before; got < 240 {
					t.Errorf("the heavy user was served %d times in half a second, and there was always room for one", got)
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
		c := &processorTest{Processors: NewProcessors(2)}
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

// TestTurnThatDoesNotEnd checks that a turn which does not end delays others only briefly, and that a cancelled request stops
// waiting.
func TestTurnThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(1)
		turns := []Work{p.For("a"), p.For("a")} // at the first one the user still counts as light
		for i := range turns {
			if err := turns[i].Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), stuckTimeout/2)
		defer cancel()
		waiting := p.For("a")
		if err := waiting.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		waiting.End() // has no effect, because it has not begun
		longer, cancel := context.WithTimeout(t.Context(), 10*stuckTimeout)
		defer cancel()
		start := time.Now()
		if err := waiting.Begin(longer); err != nil || time.Since(start) != stuckTimeout {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		waiting.End()
		waiting.End()
		for i := range turns {
			turns[i].End()
		}
		if p.taken != 0 || len(p.queue) != 0 {
			t.Errorf("%d slots are taken and %d users wait after the end", p.taken, len(p.queue))
		}
		time.Sleep(idleTimeout + 2*time.Second)
		var noWork *Work
		other := p.For("b")
		if err := errors.Join(other.Begin(t.Context()), noWork.Begin(t.Context()), (&Work{}).Begin(t.Context())); err != nil {
			t.Error(err)
		}
		other.End()
		noWork.End()
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

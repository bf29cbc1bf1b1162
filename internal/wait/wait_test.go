package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/internal/wait"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := wait.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("slept %v with the error %v, want 1h and none", time.Since(start), err)
		}
	})
}

func TestSleepEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start := time.Now()
		if err := wait.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("slept %v with the error %v, want 1m and that the deadline has passed", time.Since(start), err)
		}
		if err := wait.Sleep(ctx, 0); err == nil {
			t.Error("Sleep with a duration of zero does not return the error of its context")
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := wait.Jitter(time.Second); d < 0 || d >= time.Second {
			t.Fatalf("a jitter of up to 1s is %v", d)
		}
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if got := wait.Jitter(d); got != 0 {
			t.Errorf("a jitter of up to %v is %v, want 0", d, got)
		}
	}
}

func TestSignalsAreMerged(t *testing.T) {
	s := wait.NewSignal()
	for range 3 {
		s.Send() // would block a plain channel
	}
	<-s
	select {
	case <-s:
		t.Error("three signals were received twice")
	default:
	}
	s.Send()
	<-s
}

func TestBackoff(t *testing.T) {
	b := wait.Backoff{First: time.Second, Max: 5 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.Next(); got != want*time.Second {
			t.Errorf("pause %d is %v, want %vs", i, got, int64(want))
		}
	}
	b.Reset()
	if got := b.Next(); got != time.Second {
		t.Errorf("the pause after a reset is %v, want 1s", got)
	}
}

func TestBackoffJitter(t *testing.T) {
	different := map[time.Duration]bool{}
	for range 100 {
		b := wait.Backoff{First: time.Second, Max: time.Second, Jitter: 0.5}
		d := b.Next()
		if d < 500*time.Millisecond || d > 1500*time.Millisecond {
			t.Fatalf("a pause of 1s with a jitter of 0.5 is %v", d)
		}
		different[d] = true
	}
	if len(different) < 2 {
		t.Error("a hundred pauses with jitter are all the same")
	}
}

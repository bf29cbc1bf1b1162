package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var l rateLimiter
		start := time.Now()
		checkStart := func(want time.Duration) {
			t.Helper()
			if !l.wait(ctx) {
				t.Fatal("no transaction before the context ends")
			}
			if got := time.Since(start); got != want {
				t.Errorf("the transaction begins after %v, not %v", got, want)
			}
		}
		checkStart(0) // the first change is written at once
		checkStart(minInterval)
		time.Sleep(minInterval / 2)
		checkStart(2 * minInterval) // a change soon after the last transaction waits for the rest of the interval
		time.Sleep(time.Second)
		checkStart(2*minInterval + time.Second) // a change after a pause does not wait
		cancel()
		if l.wait(ctx) {
			t.Error("a transaction begins after the context has ended")
		}
		if got := time.Since(start); got != 2*minInterval+time.Second {
			t.Errorf("wait returned after %v", got)
		}
	})
}

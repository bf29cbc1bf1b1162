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
		at := func(want time.Duration) {
			t.Helper()
			if !l.wait(ctx) {
				t.Fatal("no transaction before the context ends")
			}
			if got := time.Since(start); got != want {
				t.Errorf("the transaction begins after %v, not %v", got, want)
			}
		}
		at(0) // the first change is written at once
		at(minInterval)
		time.Sleep(minInterval / 2)
		at(2 * minInterval) // one that comes soon after waits for the rest
		time.Sleep(time.Second)
		at(2*minInterval + time.Second) // one that comes alone does not
		cancel()
		if l.wait(ctx) {
			t.Error("a transaction begins after the end")
		}
		if got := time.Since(start); got != 2*minInterval+time.Second {
			t.Errorf("the end was noticed after %v", got)
		}
	})
}

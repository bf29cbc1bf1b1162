package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var p pace
		start := time.Now()
		at := func(want time.Duration) {
			t.Helper()
			if !p.wait(ctx) {
				t.Fatal("no transaction though nobody has said stop")
			}
			if got := time.Since(start); got != want {
				t.Errorf("the transaction begins after %v, not %v", got, want)
			}
		}
		at(0) // the first change is made at once
		at(breath)
		time.Sleep(breath / 2)
		at(2 * breath) // one that comes soon after waits for the rest
		time.Sleep(time.Second)
		at(2*breath + time.Second) // one that comes alone does not
		cancel()
		if p.wait(ctx) {
			t.Error("a transaction begins after the end")
		}
		if got := time.Since(start); got != 2*breath+time.Second {
			t.Errorf("the end was noticed after %v", got)
		}
	})
}

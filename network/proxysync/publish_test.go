package proxysync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/network/proxysync"
)

// TestKeepPublished checks that a failure is retried with back-off, and that a success resets the back-off.
func TestKeepPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		start, fails := time.Now(), 3
		var calls []time.Duration
		signal := wait.NewSignal()
		done := make(chan struct{})
		go func() {
			defer close(done)
			proxysync.KeepPublished(ctx, signal, wait.Backoff{First: time.Second, Max: time.Minute}, func(context.Context) bool {
				calls = append(calls, time.Since(start))
				fails--
				return fails < 0
			})
		}()
		signal.Send()
		time.Sleep(time.Hour)
		fails = 1
		signal.Send()
		time.Sleep(time.Hour)
		stop()
		<-done
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, time.Hour, time.Hour + time.Second}
		if len(calls) != len(want) {
			t.Fatalf("published after %v, want %v", calls, want)
		}
		for i := range want {
			if calls[i] != want[i] {
				t.Errorf("published after %v, want %v", calls, want)
			}
		}
	})
}

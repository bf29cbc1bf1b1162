package proxysync

import (
	"context"
	"time"

	"proa.dev/internal/wait"
)

// KeepPublished calls publish after every signal until ctx ends. While publish returns false, it is called again with back-off.
func KeepPublished(ctx context.Context, signal wait.Signal, backoff wait.Backoff, publish func(context.Context) bool) {
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		case <-retry:
		}
		retry = nil
		if publish(ctx) {
			backoff.Reset()
			continue
		}
		retry = time.After(backoff.Next())
	}
}

// Package clock is how the loops of a node let time pass.
package clock

import (
	"context"
	"time"
)

// Sleep waits for a while, and says whether it was not ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

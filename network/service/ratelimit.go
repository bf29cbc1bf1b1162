package service

import (
	"context"
	"time"

	"proa.dev/internal/wait"
)

// minInterval is the least time between the starts of two transactions. Most of the cost of a transaction does not depend on how much it
// changes, so a single change is written at once, and changes in quick succession are written together.
const minInterval = 10 * time.Millisecond

// rateLimiter limits how often transactions begin. The zero value is ready to use.
type rateLimiter struct{ next time.Time }

// wait waits until the next transaction may begin. It returns false if ctx has ended.
func (l *rateLimiter) wait(ctx context.Context) bool {
	if wait.Sleep(ctx, time.Until(l.next)) != nil {
		return false
	}
	l.next = time.Now().Add(minInterval)
	return true
}

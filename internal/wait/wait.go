// Package wait has what long-running goroutines wait with: Sleep, which a context can end early, Signal, by which one goroutine wakes
// another, Backoff, the growing pause between retries, and Jitter, which keeps many callers from acting at the same time.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns the error of ctx, which is nil when the whole time has passed.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Signal wakes the one goroutine that receives from it. Signals that are sent before the receiver gets around to them are
// merged into one, and sending never blocks. Make one with NewSignal.
type Signal chan struct{}

// NewSignal returns a signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver, now or the next time it receives.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // the receiver will wake up already
	}
}

// Jitter returns a random duration that is at least 0 and less than d, or 0 if d is not positive. It spreads load, and is not
// for secrets.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) //nolint:gosec // G404: it spreads load, and is no secret
}

// Backoff is the pause between retries of something that fails: it starts at First and doubles until it is Max.
// The zero value of Jitter makes the pauses exact; with a Jitter of 0.5 each is between half and one and a half times as long, so
// that many callers that failed together do not come back together.
type Backoff struct {
	First, Max time.Duration
	Jitter     float64

	next time.Duration
}

// Next returns the pause before the next retry, and makes the one after it longer.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Max)
	if b.Jitter > 0 {
		spread := time.Duration(b.Jitter * float64(d))
		d += Jitter(2*spread) - spread
	}
	return d
}

// Reset makes the next pause as short as the first one. Call it after a success.
func (b *Backoff) Reset() { b.next = 0 }

// Sleep waits for the next pause, or until ctx ends, whose error it returns.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }

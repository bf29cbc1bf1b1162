package conntrack

import (
	"context"
	"time"

	"proa.dev/internal/wait"
)

// Cleaner runs passes over the connection table in the background. A pass reads every entry of the table, so whoever writes rules must not
// wait for it, and the passes together use at most a third of a processor. Make one with NewCleaner.
type Cleaner struct {
	wake wait.Signal
	due  func() <-chan time.Time
	pass func()
}

// NewCleaner returns a cleaner. It calls pass, which deletes the entries that are due, after each Wake and whenever the channel that due
// returns receives. due may be nil.
func NewCleaner(pass func(), due func() <-chan time.Time) *Cleaner {
	if due == nil {
		due = func() <-chan time.Time { return nil }
	}
	return &Cleaner{wake: wait.NewSignal(), due: due, pass: pass}
}

// Wake requests a pass.
func (c *Cleaner) Wake() { c.wake.Send() }

// Run makes passes until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-c.due():
		}
		start := time.Now()
		c.pass()
		if wait.Sleep(ctx, 2*time.Since(start)) != nil {
			return
		}
	}
}

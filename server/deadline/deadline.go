// Package deadline has the deadlines of requests: contexts that have no timer until somebody waits for their end, and a limit for bodies
// that arrive slowly.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Context is a context with a deadline, as that of context.WithDeadline. It has no timer until somebody waits for its
// end, which few requests do.
type Context struct {
	context.Context // the parent, with which it ends too
	at              time.Time

	mu    sync.Mutex      // guards what follows
	over  bool            // it was cancelled
	timed context.Context // has the timer; nil until somebody waits
	stop  context.CancelFunc
}

// With returns a context that ends with ctx or at a time. The caller cancels it when it is no longer needed.
func With(ctx context.Context, at time.Time) *Context { return &Context{Context: ctx, at: at} }

// Deadline returns when the context ends.
func (c *Context) Deadline() (time.Time, bool) {
	if at, ok := c.Context.Deadline(); ok && at.Before(c.at) {
		return at, true
	}
	return c.at, true
}

// Done returns a channel that is closed when the context ends. It starts the timer.
func (c *Context) Done() <-chan struct{} { return c.timedContext().Done() }

// Err returns why the context has ended, or nil.
func (c *Context) Err() error {
	c.mu.Lock()
	waits := c.timed != nil || c.over
	c.mu.Unlock()
	if !waits && time.Now().Before(c.at) {
		return c.Context.Err()
	}
	return c.timedContext().Err()
}

// Value returns the value of the parent, or of the context with the timer: contexts that are derived from this one find
// there what ends them.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.Context.Value(key)
}

// Cancel ends the context and stops its timer.
func (c *Context) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil {
		c.stop()
	}
}

// timedContext returns the context with the timer, which it makes on first use.
func (c *Context) timedContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.stop = context.WithDeadline(c.Context, c.at)
		if c.over {
			c.stop()
		}
	}
	return c.timed
}

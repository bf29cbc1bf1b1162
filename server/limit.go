package server

import (
	"context"
	"sync"
	"time"
)

// bounded is a context that ends at a time, as that of context.WithDeadline does. It has no timer until somebody waits for its end,
// which few requests do.
type bounded struct {
	context.Context // whose end is its end, too
	at              time.Time

	mu    sync.Mutex      // guards what follows
	over  bool            // whoever made it has no use for it any more
	timed context.Context // ends at the time; nil until somebody waits
	stop  context.CancelFunc
}

func limit(ctx context.Context, at time.Time) *bounded { return &bounded{Context: ctx, at: at} }

// Deadline is when it ends.
func (l *bounded) Deadline() (time.Time, bool) {
	if at, ok := l.Context.Deadline(); ok && at.Before(l.at) {
		return at, true
	}
	return l.at, true
}

// Done is closed when it ends.
func (l *bounded) Done() <-chan struct{} { return l.clock().Done() }

// Err says why it has ended.
func (l *bounded) Err() error {
	l.mu.Lock()
	waits := l.timed != nil || l.over
	l.mu.Unlock()
	if !waits && time.Now().Before(l.at) {
		return l.Context.Err()
	}
	return l.clock().Err()
}

// Value is that of the context from which it was made. Those that are made from it find in it what ends them.
func (l *bounded) Value(key any) any {
	l.mu.Lock()
	timed := l.timed
	l.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return l.Context.Value(key)
}

// end ends it, and lets go of what it holds.
func (l *bounded) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.stop != nil {
		l.stop()
	}
}

func (l *bounded) clock() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.stop = context.WithDeadline(l.Context, l.at)
		if l.over {
			l.stop()
		}
	}
	return l.timed
}

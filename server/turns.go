package server

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// turns lets the writes of a namespace that change the same object besides their own, its quota, go one after the other.
// Without it each would be tried against a quota that another write of this server is just changing, and most in vain.
// That no quota is exceeded does not depend on it: the store compares revisions.
type turns struct {
	mu    sync.Mutex // guards what follows
	queue map[string]*turn
}

// turn is a place that one holds and others wait for.
type turn struct {
	free chan struct{}
	want int
}

// turnWait is how long a write may wait for its turn.
const turnWait = 10 * time.Second

// take waits for a turn. What it returns must be called when the turn is over.
func (t *turns) take(ctx context.Context, key string) (leave func(), err error) {
	t.mu.Lock()
	if t.queue == nil {
		t.queue = map[string]*turn{}
	}
	q := t.queue[key]
	if q == nil {
		q = &turn{free: make(chan struct{}, 1)}
		q.free <- struct{}{}
		t.queue[key] = q
	}
	q.want++
	t.mu.Unlock()
	drop := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.want--; q.want == 0 {
			delete(t.queue, key)
		}
	}
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	select {
	case <-q.free:
		return func() { q.free <- struct{}{}; drop() }, nil
	case <-timer.C:
		err = apierrors.NewInternalError(errors.New("resource quota evaluation timed out"))
	case <-ctx.Done():
		err = ctx.Err()
	}
	drop()
	return nil, err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

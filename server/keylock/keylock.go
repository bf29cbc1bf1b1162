// Package keylock has locks by key whose waiters give up after a while.
package keylock

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Locks are locks by key. The pipeline has one for each namespace with a quota, so that the writes that change the
// quota go one after the other. The zero value is ready for use.
type Locks struct {
	mu    sync.Mutex // guards what follows
	locks map[string]*lock
}

// lock is the lock of one key, which exists as long as somebody holds it or waits for it.
type lock struct {
	free chan struct{}
	want int // holders and waiters
}

// timeout is how long a write may wait for a lock.
const timeout = 10 * time.Second

// Lock waits for the lock of a key. The caller calls unlock when it is done.
func (l *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = map[string]*lock{}
	}
	k := l.locks[key]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.locks[key] = k
	}
	k.want++
	l.mu.Unlock()
	drop := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.want--; k.want == 0 {
			delete(l.locks, key)
		}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-k.free:
		return func() { k.free <- struct{}{}; drop() }, nil
	case <-timer.C:
		err = apierrors.NewInternalError(errors.New("resource quota evaluation timed out"))
	case <-ctx.Done():
		err = ctx.Err()
	}
	drop()
	return nil, err
}

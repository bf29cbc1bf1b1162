package store

import (
	"context"
	"sync"
	"time"
)

// revisionReader lets concurrent callers that need the current revision share one request to etcd. A caller never gets
// the response to a request that was sent before its call, so the result is linearizable.
type revisionReader struct {
	read    func(context.Context) (int64, error)
	timeout time.Duration

	// mu guards next and busy.
	mu sync.Mutex
	// next is the request that has not been sent yet.
	next *revisionRequest
	// busy reports that a goroutine is sending requests; it continues with next.
	busy bool
}

// revisionRequest is one request with the callers that wait for it.
type revisionRequest struct {
	done chan struct{}
	rev  int64
	err  error
}

func (r *revisionReader) get(ctx context.Context) (int64, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &revisionRequest{done: make(chan struct{})}
	}
	q := r.next
	if !r.busy {
		r.busy = true
		go r.run(context.WithoutCancel(ctx))
	}
	r.mu.Unlock()
	select {
	case <-q.done:
		return q.rev, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run sends requests until no caller waits. It may outlive the caller that started it, because other callers have
// joined.
func (r *revisionReader) run(ctx context.Context) {
	for {
		r.mu.Lock()
		q := r.next
		r.next = nil
		r.busy = q != nil
		r.mu.Unlock()
		if q == nil {
			return
		}
		r.ask(ctx, q)
	}
}

func (r *revisionReader) ask(ctx context.Context, q *revisionRequest) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	q.rev, q.err = r.read(ctx)
	close(q.done)
}

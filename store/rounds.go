package store

import (
	"context"
	"sync"
	"time"
)

// rounds lets callers who want the present revision at the same time share one question to etcd. A caller
// never gets the answer to a question that was asked before it came, so each answer is linearizable for it.
type rounds struct {
	read    func(context.Context) (int64, error)
	timeout time.Duration

	// mu guards next and busy.
	mu sync.Mutex
	// next is the round that has not been asked yet.
	next *question
	// busy says that a goroutine is asking; it takes next when it is done.
	busy bool
}

type question struct {
	done chan struct{}
	rev  int64
	err  error
}

func (r *rounds) get(ctx context.Context) (int64, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &question{done: make(chan struct{})}
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

// run asks until nobody waits. It outlives the caller that started it because others have joined.
func (r *rounds) run(ctx context.Context) {
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

func (r *rounds) ask(ctx context.Context, q *question) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	q.rev, q.err = r.read(ctx)
	close(q.done)
}

package volume

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
)

// queue is a work queue that holds each Pod at most once.
type queue struct {
	more wait.Signal
	// mu guards what is below.
	mu      sync.Mutex
	waiting []types.UID
	has     map[types.UID]bool
}

func newQueue() *queue { return &queue{more: wait.NewSignal(), has: map[types.UID]bool{}} }

func (q *queue) add(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.has[uid] {
		return
	}
	q.has[uid] = true
	q.waiting = append(q.waiting, uid)
	q.more.Send()
}

// next waits for a Pod; it is false when ctx ends.
func (q *queue) next(ctx context.Context) (types.UID, bool) {
	for {
		select {
		case <-ctx.Done():
			return "", false
		case <-q.more:
		}
		if uid, ok := q.take(); ok {
			return uid, true
		}
	}
}

func (q *queue) take() (types.UID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return "", false
	}
	uid := q.waiting[0]
	q.waiting = q.waiting[1:]
	delete(q.has, uid)
	if len(q.waiting) > 0 {
		q.more.Send()
	}
	return uid, true
}

package server

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/server/authz"
)

// queue bounds the requests in flight and is fair between users: when all seats are taken, each user waits in a line
// of its own, and lines are served in turn, so that one flood does not hold up the others.
type queue struct {
	mu    sync.Mutex // guards what follows
	seats int
	lines map[string]*line
	turn  []*line
}

type line struct {
	user    string
	waiting []chan struct{}
}

const (
	lineMax  = 128              // requests of one user that may wait
	lineWait = 15 * time.Second // how long they may
)

func newQueue(seats int) *queue { return &queue{seats: seats, lines: map[string]*line{}} }

var errBusy = errors.New("too many requests, please try again later.")

func (q *queue) enter(ctx context.Context, r *Request) (leave func(), err error) {
	if r.Verb == "watch" || authz.IsMaster(r.User) {
		return func() {}, nil
	}
	q.mu.Lock()
	if q.seats > 0 && len(q.turn) == 0 {
		q.seats--
		q.mu.Unlock()
		return q.leave, nil
	}
	name := r.User.GetName()
	l := q.lines[name]
	if l == nil {
		l = &line{user: name}
		q.lines[name] = l
		q.turn = append(q.turn, l)
	}
	if len(l.waiting) >= lineMax {
		q.mu.Unlock()
		return nil, tooMany()
	}
	called := make(chan struct{})
	l.waiting = append(l.waiting, called)
	q.mu.Unlock()

	timer := time.NewTimer(lineWait)
	defer timer.Stop()
	select {
	case <-called:
		return q.leave, nil
	case <-timer.C:
		err = tooMany()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !q.quit(name, called) { // called at the last moment: the seat is ours, and goes to the next
		q.leave()
	}
	return nil, err
}

// leave hands the seat to the next line in turn.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turn) == 0 {
		q.seats++
		return
	}
	l := q.turn[0]
	q.turn = q.turn[1:]
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
	if len(l.waiting) > 0 {
		q.turn = append(q.turn, l)
	} else {
		delete(q.lines, l.user)
	}
}

// quit takes a waiting request out of its line and says whether it was still there.
func (q *queue) quit(name string, called chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[name]
	if l == nil {
		return false
	}
	for i, c := range l.waiting {
		if c != called {
			continue
		}
		l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
		if len(l.waiting) == 0 {
			delete(q.lines, name)
			for j, x := range q.turn {
				if x == l {
					q.turn = append(q.turn[:j], q.turn[j+1:]...)
					break
				}
			}
		}
		return true
	}
	return false
}

func tooMany() error {
	err := apierrors.NewTooManyRequests(errBusy.Error(), 1)
	err.ErrStatus.Reason = metav1.StatusReasonTooManyRequests
	return err
}

package responsewriter

import (
	"sync/atomic"

	"proa.dev/server/fairqueue"
)

// Seat is the place of a request among those that are served at the same time.
type Seat struct {
	Flow  *fairqueue.Flow // the flow of the request; nil when it takes no seat
	leave func()
	taken atomic.Bool
}

// Take takes over a seat; leave gives it back.
func (s *Seat) Take(leave func()) {
	s.leave = leave
	s.taken.Store(true)
}

// Free gives the seat back. It may be called more than once.
func (s *Seat) Free() {
	if s.taken.Swap(false) {
		s.leave()
	}
}

// contested says that other requests wait for a seat of the same flow.
func (s *Seat) contested() bool { return s.taken.Load() && s.Flow != nil && s.Flow.IsContested() }

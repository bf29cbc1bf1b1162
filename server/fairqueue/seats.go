package fairqueue

// fits reports whether a level may take the seats of a request: from its own at any time, and beyond that up to its
// limit as long as no other level has a claim to them. A large flow leaves some for the others, so that these need not
// wait until it releases one.
func (s *Dispatcher) fits(l *level, w *waiter) bool {
	width := w.width
	if l.isLarge(w.flow) {
		width += l.spareSeats()
	}
	if l.running+width > l.upper {
		return false
	}
	more := max(l.running+width, l.lower) - l.reservedSeats()
	return s.reserved+more <= s.allSeats
}

// takeSeats gives seats to a request.
func (s *Dispatcher) takeSeats(l *level, w *waiter) {
	s.reserved -= l.reservedSeats()
	l.running += w.width
	s.reserved += l.reservedSeats()
	l.addSeats(w.flow, w.width)
}

// releaseSeats takes seats back, and dispatches requests that wait for them.
func (s *Dispatcher) releaseSeats(l *level, w *waiter) {
	s.reserved -= l.reservedSeats()
	l.running -= w.width
	s.reserved += l.reservedSeats()
	l.addSeats(w.flow, -w.width)
	if l.deleted && !l.isBusy() && s.levels[l.name] == l {
		delete(s.levels, l.name)
		s.reserved -= l.reservedSeats()
		s.allSeats -= l.nominal
	}
	s.dispatch()
}

// dispatch lets waiting requests run as long as there are seats: first of the level that uses least of its share.
func (s *Dispatcher) dispatch() {
	for s.waiting > 0 {
		var next *level
		var line *queue
		for _, l := range s.levels {
			if q := s.nextQueue(l); q != nil && s.fits(l, q.waiting[0]) && (next == nil || l.isBefore(next)) {
				next, line = l, q
			}
		}
		if next == nil {
			return
		}
		w := next.dequeue(line)
		s.waiting--
		s.takeSeats(next, w)
	}
}

// nextQueue returns the queue of a level that had least, or of several the one whose first request came first. A large
// flow for which there are too few seats does not block the others; nil when there is no other.
func (s *Dispatcher) nextQueue(l *level) (best *queue) {
	if l.waiting == 0 {
		return nil
	}
	for _, q := range l.queueList {
		switch {
		case len(q.waiting) == 0:
		case l.isLarge(q.waiting[0].flow) && !s.fits(l, q.waiting[0]):
		case best == nil, q.served < best.served, q.served == best.served && q.waiting[0].number < best.waiting[0].number:
			best = q
		}
	}
	return best
}

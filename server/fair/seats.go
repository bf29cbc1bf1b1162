package fair

// fits says that a level may take the seats of a request: from those that are its own at any time, and beyond up to its limit as long as
// nobody else may claim them. A large flow leaves some for the others, so that these need not wait until it gives one back.
func (s *Sharing) fits(l *level, w *waiter) bool {
	width := w.width
	if l.large(w.flow) {
		width += l.spare()
	}
	if l.running+width > l.upper {
		return false
	}
	more := max(l.running+width, l.lower) - l.holds()
	return s.reserved+more <= s.room
}

// take gives seats to a level.
func (s *Sharing) take(l *level, w *waiter) {
	s.reserved -= l.holds()
	l.running += w.width
	s.reserved += l.holds()
	l.count(w.flow, w.width)
}

// give takes seats back, and calls those who wait for them.
func (s *Sharing) give(l *level, w *waiter) {
	s.reserved -= l.holds()
	l.running -= w.width
	s.reserved += l.holds()
	l.count(w.flow, -w.width)
	if l.gone && !l.busy() && s.levels[l.name] == l {
		delete(s.levels, l.name)
		s.reserved -= l.holds()
		s.room -= l.nominal
	}
	s.dispatch()
}

// dispatch calls requests that wait as long as there are seats: first of the level that uses least of its share.
func (s *Sharing) dispatch() {
	for s.waiting > 0 {
		var next *level
		var line *queue
		for _, l := range s.levels {
			if q := s.next(l); q != nil && s.fits(l, q.waiting[0]) && (next == nil || l.before(next)) {
				next, line = l, q
			}
		}
		if next == nil {
			return
		}
		w := next.call(line)
		s.waiting--
		s.take(next, w)
	}
}

// next is the line of a level that had least, or of several the one whose first request came first. A large flow for which there are too few
// seats holds nobody up; nil when there is no other.
func (s *Sharing) next(l *level) (best *queue) {
	if l.waiting == 0 {
		return nil
	}
	for _, q := range l.lines {
		switch {
		case len(q.waiting) == 0:
		case l.large(q.waiting[0].flow) && !s.fits(l, q.waiting[0]):
		case best == nil, q.served < best.served, q.served == best.served && q.waiting[0].number < best.waiting[0].number:
			best = q
		}
	}
	return best
}

package fair

// fits says that a level may take seats: from those that are its own at any time, and beyond up to its limit as long as
// nobody else may claim them.
func (s *Sharing) fits(l *level, width int) bool {
	if l.running+width > l.upper {
		return false
	}
	more := max(l.running+width, l.lower) - l.holds()
	return s.reserved+more <= s.room
}

// take gives seats to a level.
func (s *Sharing) take(l *level, width int) {
	s.reserved -= l.holds()
	l.running += width
	s.reserved += l.holds()
}

// give takes seats back, and calls those who wait for them.
func (s *Sharing) give(l *level, width int) {
	s.reserved -= l.holds()
	l.running -= width
	s.reserved += l.holds()
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
		for _, l := range s.levels {
			if l.waiting == 0 || !s.fits(l, l.front().width) {
				continue
			}
			if next == nil || l.before(next) {
				next = l
			}
		}
		if next == nil {
			return
		}
		w := next.call()
		s.waiting--
		s.take(next, w.width)
	}
}

package memory

import "time"

// expiry is the time at which a key expires.
type expiry struct {
	at time.Time
	*item
}

func (e expiry) before(o expiry) bool {
	if c := e.at.Compare(o.at); c != 0 {
		return c < 0
	}
	return e.key < o.key
}

// expire sets when an item expires; the zero time stands for never.
func (s *Store) expire(i *item, until time.Time) {
	if !i.until.IsZero() {
		s.expiries.Delete(expiry{i.until, i})
	}
	i.until = until
	if !until.IsZero() {
		s.expiries.ReplaceOrInsert(expiry{until, i})
	}
}

// setTimer sets the timer to the first expiry, unless it fires earlier anyway. A timer that fires too early, because
// its key was written again, finds nothing to delete and is set again.
func (s *Store) setTimer() {
	first, ok := s.expiries.Min()
	if !ok || s.timer != nil && !first.at.Before(s.timerAt) {
		return
	}
	if s.timer != nil && !s.stopTimer() {
		return // deleteExpired is running, and sets the timer again
	}
	s.timers.Add(1)
	s.timerAt = first.at
	s.timer = time.AfterFunc(time.Until(first.at), s.deleteExpired)
}

// stopTimer stops the timer. It returns false if it is too late and deleteExpired is running.
func (s *Store) stopTimer() bool {
	if s.timer == nil || !s.timer.Stop() {
		return false
	}
	s.timer = nil
	s.timers.Done()
	return true
}

// deleteExpired deletes the expired keys, all at one revision.
func (s *Store) deleteExpired() {
	defer s.timers.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.closed {
		return
	}
	now, rev, from := time.Now(), s.rev+1, len(s.log)
	for {
		first, ok := s.expiries.Min()
		if !ok || first.at.After(now) {
			break
		}
		s.remove(first.item, rev)
	}
	if s.notifyWatches(from) {
		s.rev = rev
	}
	s.setTimer()
}

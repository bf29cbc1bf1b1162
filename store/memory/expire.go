package memory

import "time"

// expiry is when a key ends.
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

// expire gives an item a new end of its life, or none.
func (s *Store) expire(i *item, until time.Time) {
	if !i.until.IsZero() {
		s.expiries.Delete(expiry{i.until, i})
	}
	i.until = until
	if !until.IsZero() {
		s.expiries.ReplaceOrInsert(expiry{until, i})
	}
}

// setAlarm sets the alarm to the first expiry, if there is one and it does not ring before that anyway. An alarm that rings
// too early, because its key was written anew, finds nothing to do and is set again.
func (s *Store) setAlarm() {
	first, ok := s.expiries.Min()
	if !ok || s.alarm != nil && !first.at.Before(s.rings) {
		return
	}
	if s.alarm != nil && !s.silence() {
		return // it rings just now, and will be set by ring
	}
	s.ringing.Add(1)
	s.rings = first.at
	s.alarm = time.AfterFunc(time.Until(first.at), s.ring)
}

// silence stops the alarm. It returns false when that was too late and ring is under way.
func (s *Store) silence() bool {
	if s.alarm == nil || !s.alarm.Stop() {
		return false
	}
	s.alarm = nil
	s.ringing.Done()
	return true
}

// ring deletes the keys whose time has come, all at one revision.
func (s *Store) ring() {
	defer s.ringing.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = nil
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
	if s.told(from) {
		s.rev = rev
	}
	s.setAlarm()
}

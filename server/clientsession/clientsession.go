// Package clientsession remembers when commands of kubectl began. All requests of one command have the same session in a header; the
// first of them is often a read, such as discovery, and a write that follows would not show how long the command had worked before.
package clientsession

import (
	"hash/maphash"
	"sync"
	"time"
)

// limit is how many sessions are remembered; the oldest make room.
const limit = 1024

// Sessions has the beginnings of the latest sessions. The zero value is ready to use.
type Sessions struct {
	mu     sync.Mutex // guards what follows
	seed   maphash.Seed
	begins map[uint64]time.Time // by the hash of the user and the session
	order  []uint64             // the sessions in the order of their first requests; a ring once it is full
	oldest int                  // the index in order of the session that makes room
}

// Request says that a request of a user's session has arrived, and returns when the first one of the session did. Nobody checks the name of
// a session, so it is only one among those of the same user.
func (s *Sessions) Request(user, session string, arrived time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begins == nil {
		s.seed, s.begins = maphash.MakeSeed(), make(map[uint64]time.Time)
	}
	key := maphash.Comparable(s.seed, [2]string{user, session})
	if first, known := s.begins[key]; known {
		return first
	}
	if len(s.order) < limit {
		s.order = append(s.order, key)
	} else {
		delete(s.begins, s.order[s.oldest])
		s.order[s.oldest] = key
		s.oldest = (s.oldest + 1) % limit
	}
	s.begins[key] = arrived
	return arrived
}

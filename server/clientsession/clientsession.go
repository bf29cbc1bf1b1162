// Package clientsession remembers when commands of kubectl began. All requests of one command have the same session in a header; the
// first of them is often a read, such as discovery, and a write that follows would not show how long the command had worked before.
package clientsession

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// parts is how many parts the memory has, and limit how many sessions are remembered in each; the oldest make room. All sessions of a
	// user are in one part, so that whoever names a new session in each request pushes out few of others.
	parts, limit = 64, 64
)

// Sessions has the beginnings of the latest sessions. The zero value is ready to use.
type Sessions struct {
	once  sync.Once
	seed  maphash.Seed
	parts [parts]part
}

// part has the sessions of some users.
type part struct {
	mu     sync.Mutex           // guards what follows
	begins map[uint64]time.Time // by the hash of the user and the session
	order  []uint64             // the sessions in the order of their first requests; a ring once it is full
	oldest int                  // the index in order of the session that makes room
}

// Request says that a request of a user's session has arrived, and returns when the first one of the session did. Nobody checks the name of
// a session, so it is only one among those of the same user.
func (s *Sessions) Request(user, session string, arrived time.Time) time.Time {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	key := maphash.Comparable(s.seed, [2]string{user, session})
	return s.partOf(user).request(key, arrived)
}

func (s *Sessions) partOf(user string) *part { return &s.parts[maphash.String(s.seed, user)%parts] }

func (p *part) request(key uint64, arrived time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first, known := p.begins[key]; known {
		return first
	}
	if p.begins == nil {
		p.begins = make(map[uint64]time.Time)
	}
	if len(p.order) < limit {
		p.order = append(p.order, key)
	} else {
		delete(p.begins, p.order[p.oldest])
		p.order[p.oldest] = key
		p.oldest = (p.oldest + 1) % limit
	}
	p.begins[key] = arrived
	return arrived
}

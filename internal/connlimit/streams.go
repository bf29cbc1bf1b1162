package connlimit

import "sync"

// streams counts connections that the process opens for its users and that last, such as exec, port-forward and
// upgraded requests of proxies.
type streams struct {
	mu    sync.Mutex // guards what follows
	limit int
	open  int
	owned map[string]int
}

func newStreams(limit int) streams { return streams{limit: max(limit, 4), owned: map[string]int{}} }

// Stream counts a stream of a user until end is called. It returns false if the user has half of all streams that there
// may be, or if there are too many; members of system:masters have a quarter of them for themselves.
func (b *Budget) Stream(name string, groups []string) (end func(), ok bool) {
	if b == nil {
		return func() {}, true
	}
	s, owner, limit := &b.streams, ownerOf(name), b.streams.limit
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isAdministrator(groups) {
		if limit = limit * 3 / 4; s.owned[owner] >= s.limit/2 {
			return nil, false
		}
	}
	if s.open >= limit {
		return nil, false
	}
	s.open++
	s.owned[owner]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.owned[owner]--; s.owned[owner] == 0 {
			delete(s.owned, owner)
		}
	}), true
}

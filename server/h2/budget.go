package h2

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"proa.dev/server/h2/h2wire"
)

// Limits of the memory that all connections hold together, unless a Config says otherwise.
const (
	// unauthenticatedMemory is the limit of all connections on which no request has been authenticated yet.
	unauthenticatedMemory = 128 << 20
	// authenticatedMemory is the limit of all other connections.
	authenticatedMemory = 512 << 20
)

const (
	// connectionCost is what an open connection counts by itself while it is unauthenticated: TLS, buffers, HPACK
	// tables, a goroutine.
	connectionCost = 32 << 10
	// handlerCost is what a running handler counts while its connection is unauthenticated, mostly its goroutine.
	handlerCost = 16 << 10
	// accountStep is by how much the memory of a connection changes before the budget is updated, so that small
	// requests do not contend for it.
	accountStep = 4 << 10
	// ordinaryMemory is the most that an ordinary client holds before it is authenticated.
	ordinaryMemory = 128 << 10
)

// budget limits the memory that a group of connections holds together: decoded headers, unread bodies, and frames that
// wait to be sent.
type budget struct {
	limit    int64
	held     atomic.Int64
	evicting atomic.Bool // a goroutine is closing connections of the group
}

// isExceeded reports whether the group holds more than its limit.
func (b *budget) isExceeded() bool { return b.held.Load() > b.limit }

func orDefault(n int64, otherwise int64) int64 {
	if n > 0 {
		return n
	}
	return otherwise
}

// evictionCandidate is a connection that may be closed to free memory.
type evictionCandidate struct {
	conn  *conn
	bytes int64
	since time.Time // when it was opened
}

// chooseEvicted returns the connections to close so that at least excess bytes become free. Among unauthenticated
// connections, those that hold unusually much go first, in classes that double, and within a class the oldest: a client
// that has just connected and is about to authenticate goes last, however many unauthenticated clients there are. Among
// authenticated connections, those that hold most go first.
func chooseEvicted(all []evictionCandidate, excess int64, authenticated bool) []evictionCandidate {
	slices.SortFunc(all, func(a, b evictionCandidate) int {
		if authenticated {
			return cmp.Compare(b.bytes, a.bytes)
		}
		return cmp.Or(cmp.Compare(memoryClass(b.bytes), memoryClass(a.bytes)), a.since.Compare(b.since))
	})
	for i, h := range all {
		if excess <= 0 {
			return all[:i]
		}
		excess -= h.bytes
	}
	return all
}

// memoryClass is 0 for what an ordinary client holds, and one more for each doubling beyond that.
func memoryClass(n int64) int {
	class := 0
	for ; n > ordinaryMemory; n /= 2 {
		class++
	}
	return class
}

// errEvicted is the error that handlers get when their connection is closed because its memory is needed.
var errEvicted = errors.New("the connection was closed because connections hold too much memory")

// evict closes connections of a group until it holds at most seven eighths of its limit. Only one goroutine does that
// at a time.
func (s *connections) evict(b *budget, authenticated bool) {
	defer b.evicting.Store(false)
	s.mu.Lock()
	all := make([]evictionCandidate, 0, len(s.conns))
	pending := int64(0) // what connections hold that are being closed already
	for c := range s.conns {
		if c.authenticated.Load() != authenticated {
			continue
		}
		if c.evicted.Load() {
			pending += c.counted.Load()
			continue
		}
		all = append(all, evictionCandidate{c, c.counted.Load(), c.opened})
	}
	s.mu.Unlock()
	excess := b.held.Load() - pending - b.limit/8*7
	for _, h := range chooseEvicted(all, excess, authenticated) {
		h.conn.evict()
	}
}

// evict ends all requests of the connection. Its reading goroutine then closes it and tells the client why.
func (c *conn) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil || c.evicted.Swap(true) {
		return
	}
	for _, st := range c.streams {
		c.drop(st, errEvicted)
	}
	if !c.out.writing {
		c.out.bytes = nil
	}
	c.goingAway = true
	c.account()
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
}

// memory estimates how many bytes the connection holds; it errs on the high side.
func (c *conn) memory() int64 {
	n := c.headers + c.partialHeader + c.unread + c.parked + cap(c.out.bytes) + c.out.sending
	if !c.authenticated.Load() {
		if n += c.running * handlerCost; !c.closed {
			n += connectionCost
		}
	}
	return int64(n)
}

// account updates the budget of the connection's group. The lock is held.
func (c *conn) account() {
	if c.owner == nil {
		return
	}
	now := c.memory()
	more := now - c.counted.Load()
	if more == 0 || !c.closed && -accountStep < more && more < accountStep {
		return
	}
	known := c.authenticated.Load()
	b := c.owner.budgetOf(known)
	c.counted.Store(now)
	b.held.Add(more)
	if more > 0 && b.isExceeded() && !b.evicting.Swap(true) {
		go c.owner.evict(b, known)
	}
}

// budgetOf returns the budget of a group of connections.
func (s *connections) budgetOf(authenticated bool) *budget {
	if authenticated {
		return &s.authenticated
	}
	return &s.unauthenticated
}

// authenticate records that a request of the connection has been authenticated. From then on it counts among the
// authenticated connections, with their higher limits. The lock is held.
func (c *conn) authenticate() {
	if c.authenticated.Load() || c.closed {
		return
	}
	if c.owner != nil {
		c.owner.unauthenticated.held.Add(-c.counted.Swap(0))
	}
	c.authenticated.Store(true)
	more := ConnectionWindow(c.Streams) - c.bodies.size
	c.bodies.size += more
	c.bodies.room += more
	c.out.bytes = h2wire.AppendWindowUpdate(c.out.bytes, 0, more)
	c.account()
	c.startWriter()
}

// close records that the connection has ended. Handlers that still run keep what they hold until they return.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.out.bytes, c.out.spare, c.partialHeader = nil, nil, 0
	c.account()
}

// headerLimit returns how many bytes the headers of all requests of the connection may hold together. A single request
// is always accepted, up to the limit for one request.
func (c *conn) headerLimit() int {
	n := c.Header + 2*c.Streams*h2wire.RequestCost
	if c.authenticated.Load() {
		n += 3 * c.Header
	}
	return n
}

// parkedAnswer is how much of a response each of the concurrent requests of a connection may leave behind after its
// handler has returned. It is what net/http buffers for a response.
const parkedAnswer = 4 << 10

// parkLimit returns how many bytes of responses the connection keeps for handlers that have returned while the client
// does not read. An unauthenticated client must not be able to exceed it with small responses, because the handlers
// beyond it keep their seats in the queue of requests.
func (c *conn) parkLimit() int {
	if c.authenticated.Load() {
		return 1 << 20
	}
	return max(64<<10, c.Streams*parkedAnswer)
}

// stallLimit returns how long a client may read nothing of a response.
func (c *conn) stallLimit() time.Duration {
	if c.authenticated.Load() {
		return stallTimeout
	}
	return unauthenticatedStallTimeout
}

// release gives back the memory that the header of a request has counted. The lock is held.
func (c *conn) release(st *stream) {
	c.headers -= st.cost
	st.cost = 0
}

package h2

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// What connections may hold in memory together, unless a Config says otherwise.
const (
	// unauthenticatedMemory is for all connections on which no request has been authenticated yet.
	unauthenticatedMemory = 128 << 20
	// authenticatedMemory is for all others.
	authenticatedMemory = 512 << 20
)

const (
	// connectionCost is what an open connection counts by itself while it is unauthenticated: TLS, buffers, HPACK tables, a goroutine.
	connectionCost = 32 << 10
	// streamCost is what a request counts beside the bytes of its header.
	streamCost = 2 << 10
	// handlerCost is what a running handler counts while its connection is unauthenticated: its goroutine, above all.
	handlerCost = 16 << 10
	// headerFieldCost is what a header field counts beside its bytes: its place in the header map.
	headerFieldCost = 64
	// accountStep is how much the memory of a connection changes before the budget is told, so that small requests do not contend for it.
	accountStep = 4 << 10
	// ordinaryMemory is what a client that does nothing unusual holds at most before it is authenticated.
	ordinaryMemory = 128 << 10
)

// budget bounds the memory that a group of connections holds together: decoded headers, unread bodies, and frames that wait to be sent.
type budget struct {
	limit    int64
	held     atomic.Int64
	evicting atomic.Bool // somebody closes connections of the group already
}

// exceeded tells whether the group holds more than it may.
func (b *budget) exceeded() bool { return b.held.Load() > b.limit }

func orDefault(n int64, otherwise int64) int64 {
	if n > 0 {
		return n
	}
	return otherwise
}

// holder is a connection as the choice of those to close sees it.
type holder struct {
	conn  *conn
	bytes int64
	since time.Time // when it was opened
}

// chooseEvicted chooses the connections to close so that at least excess bytes become free. Among unauthenticated connections, those that
// hold unusually much go first, in classes that double, and within a class the oldest: a client that has just connected and is about to
// authenticate is the last to go, however many strangers there are. Among authenticated ones, those that hold most go first.
func chooseEvicted(all []holder, excess int64, authenticated bool) []holder {
	slices.SortFunc(all, func(a, b holder) int {
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

// memoryClass is 0 for what an ordinary client holds, and one more for each doubling beyond.
func memoryClass(n int64) int {
	class := 0
	for ; n > ordinaryMemory; n /= 2 {
		class++
	}
	return class
}

// errEvicted is what handlers learn when their connection is closed because others need its memory.
var errEvicted = errors.New("the connection was closed because connections hold too much memory")

// evict closes connections of a group until it holds seven eighths of what it may. Only one goroutine does that at a time.
func (s *connections) evict(b *budget, authenticated bool) {
	defer b.evicting.Store(false)
	s.mu.Lock()
	all := make([]holder, 0, len(s.conns))
	pending := int64(0) // what connections that are being closed still hold
	for c := range s.conns {
		if c.authenticated.Load() != authenticated {
			continue
		}
		if c.evicted.Load() {
			pending += c.counted.Load()
			continue
		}
		all = append(all, holder{c, c.counted.Load(), c.opened})
	}
	s.mu.Unlock()
	excess := b.held.Load() - pending - b.limit/8*7
	for _, h := range chooseEvicted(all, excess, authenticated) {
		h.conn.evict()
	}
}

// evict ends all requests of the connection, and then the connection itself: its reader says why.
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
	c.leaving = true
	c.account()
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
}

// memory is what the connection holds: an estimate that errs on the high side.
func (c *conn) memory() int64 {
	n := c.headers + c.partialHeader + c.unread + c.parked + cap(c.out.bytes) + c.out.sending
	if !c.authenticated.Load() {
		if n += c.running * handlerCost; !c.closed {
			n += connectionCost
		}
	}
	return int64(n)
}

// account tells the budget of the connection's group what the connection holds now. The lock is held.
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
	if more > 0 && b.exceeded() && !b.evicting.Swap(true) {
		go c.owner.evict(b, known)
	}
}

// budgetOf is the budget of a group of connections.
func (s *connections) budgetOf(authenticated bool) *budget {
	if authenticated {
		return &s.authenticated
	}
	return &s.unauthenticated
}

// authenticate says that a request of the connection has been authenticated. From then on the connection may hold more, and counts among
// those of users. The lock is held.
func (c *conn) authenticate() {
	if c.authenticated.Load() || c.closed {
		return
	}
	if c.owner != nil {
		c.owner.unauthenticated.held.Add(-c.counted.Swap(0))
	}
	c.authenticated.Store(true)
	more := ConnectionWindow(c.Streams) - c.upload.size
	c.upload.size += more
	c.upload.room += more
	c.out.bytes = appendWindow(c.out.bytes, 0, more)
	c.account()
	c.call()
}

// close says that the connection has ended. Handlers that still run keep what they hold until they return.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.out.bytes, c.out.spare, c.partialHeader = nil, nil, 0
	c.account()
}

// headerLimit is how many bytes the headers of all requests of a connection may hold. One request is always taken, up to the limit of
// its own.
func (c *conn) headerLimit() int {
	n := c.Header + 2*c.Streams*streamCost
	if c.authenticated.Load() {
		n += 3 * c.Header
	}
	return n
}

// parkedAnswer is how much each of the requests that a connection may have at a time can leave behind without a handler that waits. It is what
// net/http buffers for an answer.
const parkedAnswer = 4 << 10

// parkLimit is how many bytes of answers a connection keeps for handlers that have returned, while the client takes none. A stranger must not
// be able to exceed it with small answers, because the handlers beyond it keep their seats.
func (c *conn) parkLimit() int {
	if c.authenticated.Load() {
		return 1 << 20
	}
	return max(64<<10, c.Streams*parkedAnswer)
}

// stallLimit is how long a client may take nothing of an answer.
func (c *conn) stallLimit() time.Duration {
	if c.authenticated.Load() {
		return stall
	}
	return strangerStall
}

// release gives back what a request has held. The lock is held.
func (c *conn) release(st *stream) {
	c.headers -= st.cost
	st.cost = 0
}

package route

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool are the endpoints of one backend, with the connections to them.
type Pool struct {
	ref  Ref
	turn atomic.Uint64
	live atomic.Pointer[[]*endpoint]

	mu sync.Mutex // held by who changes live
}

// endpoint is one server.
type endpoint struct {
	addr      string
	transport *http.Transport
	busy      atomic.Int64 // requests that it has not answered in full
	gone      atomic.Bool
	// resting is until when it is not asked unless there is no other, because it could not be reached; Unix nanoseconds.
	resting atomic.Int64
}

// restFor is how long an endpoint that could not be reached is left alone.
const restFor = 2 * time.Second

// NewPool makes a pool without endpoints.
func NewPool(ref Ref) *Pool {
	p := &Pool{ref: ref}
	p.live.Store(new([]*endpoint))
	return p
}

// Set says which endpoints there are, each once. Those that stay keep their connections. Those that go get no new requests; the ones that
// they have are finished.
func (p *Pool) Set(addrs []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.live.Load()
	have := make(map[string]*endpoint, len(old))
	for _, e := range old {
		have[e.addr] = e
	}
	next := make([]*endpoint, 0, len(addrs))
	for _, a := range addrs {
		e := have[a.String()]
		if e == nil {
			e = &endpoint{addr: a.String(), transport: newTransport(p.ref)}
		}
		delete(have, e.addr)
		next = append(next, e)
	}
	p.live.Store(&next)
	for _, e := range have {
		e.gone.Store(true)
		e.transport.CloseIdleConnections()
	}
}

// take chooses an endpoint for a request, which must release it. Nil says that there is none.
func (p *Pool) take(client string, tried []*endpoint) *endpoint {
	for {
		e := p.pick(client, tried)
		if e == nil {
			return nil
		}
		e.busy.Add(1)
		if !e.gone.Load() {
			return e
		}
		e.release() // it went just now, and who waits for it to be idle may have seen it so
	}
}

// pick chooses an endpoint that was not tried yet: the next in turn, or another one that has less to do.
func (p *Pool) pick(client string, tried []*endpoint) *endpoint {
	live := *p.live.Load()
	if len(live) == 0 {
		return nil
	}
	if p.ref.Sticky {
		return sticky(client, live, tried)
	}
	now := time.Now().UnixNano()
	turn := int(p.turn.Add(1) % uint64(len(live)))
	if len(tried) == 0 {
		one := live[turn]
		other := live[rand.IntN(len(live))] //nolint:gosec // G404: who can guess it gains nothing
		if other.busy.Load() < one.busy.Load() {
			one = other
		}
		if one.resting.Load() <= now {
			return one
		}
	}
	var tired *endpoint
	for i := range live {
		e := live[(turn+i)%len(live)]
		switch {
		case slices.Contains(tried, e):
		case e.resting.Load() <= now:
			return e
		case tired == nil:
			tired = e
		}
	}
	return tired
}

// release says that a request is over.
func (e *endpoint) release() {
	e.busy.Add(-1)
	if e.gone.Load() {
		e.transport.CloseIdleConnections()
	}
}

// rest leaves the endpoint alone for a while.
func (e *endpoint) rest() { e.resting.Store(time.Now().Add(restFor).UnixNano()) }

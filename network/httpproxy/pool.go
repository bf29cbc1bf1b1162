package httpproxy

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool holds the endpoints of one backend, with the connections to them.
type Pool struct {
	ref  Ref
	turn atomic.Uint64
	live atomic.Pointer[[]*endpoint]

	mu sync.Mutex // held while live is changed
}

// endpoint is one server of a backend.
type endpoint struct {
	addr      string
	transport *http.Transport
	busy      atomic.Int64 // requests that are in flight
	removed   atomic.Bool
	// avoidUntil is until when the endpoint is avoided because it could not be reached, in Unix nanoseconds. It is used
	// only if there is no other.
	avoidUntil atomic.Int64
	// notifyUntil is until when Config.Answered is called for answers, in Unix nanoseconds; 0 if it need not be.
	notifyUntil atomic.Int64
}

// notifyFor is how long Config.Answered is called for the answers of a new endpoint. The proxy may know of an endpoint before others do.
const notifyFor = 30 * time.Second

// avoidFor is how long an endpoint that could not be reached is avoided.
const avoidFor = 2 * time.Second

// NewPool returns a pool without endpoints.
func NewPool(ref Ref) *Pool {
	p := &Pool{ref: ref}
	p.live.Store(new([]*endpoint))
	return p
}

// Set sets the endpoints, each once. Endpoints that stay keep their connections. Removed endpoints get no new requests;
// those in flight are finished.
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
			e.notifyUntil.Store(time.Now().Add(notifyFor).UnixNano())
		}
		delete(have, e.addr)
		next = append(next, e)
	}
	p.live.Store(&next)
	for _, e := range have {
		e.removed.Store(true)
		e.transport.CloseIdleConnections()
	}
}

// take returns an endpoint for a request, or nil if there is none. The caller must release it.
func (p *Pool) take(client string, tried []*endpoint) *endpoint {
	for {
		e := p.pick(client, tried)
		if e == nil {
			return nil
		}
		e.busy.Add(1)
		if !e.removed.Load() {
			return e
		}
		e.release() // it was removed meanwhile, and Set may have found it idle
	}
}

// pick returns an endpoint that was not tried yet: the next one round-robin, or a random one that is less busy.
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
		other := live[rand.IntN(len(live))] //nolint:gosec // G404: it spreads load, and is no secret
		if other.busy.Load() < one.busy.Load() {
			one = other
		}
		if one.avoidUntil.Load() <= now {
			return one
		}
	}
	var tired *endpoint
	for i := range live {
		e := live[(turn+i)%len(live)]
		switch {
		case slices.Contains(tried, e):
		case e.avoidUntil.Load() <= now:
			return e
		case tired == nil:
			tired = e
		}
	}
	return tired
}

// release marks a request of the endpoint as finished.
func (e *endpoint) release() {
	e.busy.Add(-1)
	if e.removed.Load() {
		e.transport.CloseIdleConnections()
	}
}

// watchAnswer returns a function that the caller calls when the endpoint has answered a request that is sent now. While the endpoint is
// new, that function calls notify, which is Config.Answered and may be nil.
func (e *endpoint) watchAnswer(notify func(netip.AddrPort, time.Time) bool) func() {
	until := e.notifyUntil.Load()
	if until == 0 || notify == nil {
		return func() {}
	}
	sent := time.Now()
	return func() {
		addr, err := netip.ParseAddrPort(e.addr)
		if err != nil || sent.UnixNano() > until || notify(addr, sent) {
			e.notifyUntil.Store(0)
		}
	}
}

// avoid makes the pool avoid the endpoint for a while.
func (e *endpoint) avoid() { e.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano()) }

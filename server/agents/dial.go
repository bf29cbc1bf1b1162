package agents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// ahead is how long a route may take to lead somewhere before the tunnel is tried too.
	ahead = 250 * time.Millisecond
	// shunned is how long a route is not tried that was slower than the tunnel, or led nowhere.
	shunned = time.Minute
)

// Dial connects to an address of a node: that of its agent, another one of the node itself, or of one of its Pods. It goes by a
// route where there is one, and through the tunnel of the node where there is none.
func (a *Agents) Dial(ctx context.Context, node, addr string) (net.Conn, error) {
	t := a.tunnel(node)
	if t == nil {
		c, err := a.route(ctx, "tcp", addr)
		if err != nil {
			a.numbers.failed.Add(1)
			return nil, fmt.Errorf("node %s cannot be reached, and has no tunnel to this server: %w", node, err)
		}
		a.numbers.direct.Add(1)
		return c, nil
	}
	var c net.Conn
	var err error
	direct := false
	if to := t.place(addr); t.skips(to, time.Now()) {
		c, err = t.dial(ctx, addr)
	} else {
		c, direct, err = a.both(ctx, func(ctx context.Context) (net.Conn, error) { return a.route(ctx, "tcp", addr) },
			func(ctx context.Context) (net.Conn, error) { return t.dial(ctx, addr) })
		if err == nil && !direct {
			t.shut[to].Store(time.Now().Add(shunned).UnixNano())
		}
	}
	switch {
	case err != nil:
		a.numbers.failed.Add(1)
	case direct:
		a.numbers.direct.Add(1)
	default:
		a.numbers.tunnel.Add(1)
	}
	return c, err
}

// The places that routes lead to: there may be one to a node and none to its Pods.
const (
	toNode = iota
	toPods
)

// place says what an address is one of.
func (t *tunnel) place(addr string) int {
	if to, err := netip.ParseAddrPort(addr); err == nil && slices.Contains(t.own, to.Addr().Unmap()) {
		return toNode
	}
	return toPods
}

// skips says that only the tunnel leads to a place.
func (t *tunnel) skips(place int, now time.Time) bool {
	return t.translated || now.UnixNano() < t.shut[place].Load()
}

// dialed is how an attempt has ended.
type dialed struct {
	net.Conn
	err    error
	direct bool
}

// both tries the route, and the tunnel when that has failed or takes long. Whichever is there first is taken.
func (a *Agents) both(ctx context.Context, route, tunnel func(context.Context) (net.Conn, error)) (c net.Conn, direct bool, err error) {
	if !a.enter() {
		return nil, false, errClosed
	}
	defer a.attempts.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan dialed, 2)
	a.attempts.Go(func() {
		c, err := route(ctx)
		ends <- dialed{c, err, true}
	})
	patience := time.NewTimer(ahead)
	defer patience.Stop()
	open, tunneled := 1, false
	var errs []error
	for open > 0 {
		var got dialed
		select {
		case got = <-ends:
			open--
		case <-patience.C:
		}
		if got.Conn != nil && got.err == nil {
			if open > 0 { // the other one is told to stop, and may have come just now
				a.attempts.Go(func() {
					if late := <-ends; late.err == nil {
						_ = late.Close()
					}
				})
			}
			return got.Conn, got.direct, nil
		}
		if got.err != nil {
			errs = append(errs, got.err)
		}
		if !tunneled && ctx.Err() == nil {
			tunneled = true
			open++
			a.attempts.Go(func() {
				c, err := tunnel(ctx)
				ends <- dialed{c, err, false}
			})
		}
	}
	return nil, false, errors.Join(errs...)
}

// enter counts an attempt, unless all is over.
func (a *Agents) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.attempts.Add(1)
	}
	return !a.closed
}

// tunnel is that of a node; nil for none.
func (a *Agents) tunnel(node string) *tunnel {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tunnels[node]
}

// otherError refuses a tunnel for a node to which somebody else has one.
type otherError struct{ *apierrors.StatusError }

func (e *otherError) Unwrap() error { return e.StatusError }

// room says whether a tunnel may be opened. One process that finds this server at two addresses keeps one tunnel: they would take
// each other's place for ever. Somebody else with another certificate for the same name does not take the place of one that is
// open: it may not be the node.
func (a *Agents) room(t *tunnel) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.tunnels[t.node]
	switch {
	case a.closed:
		return apierrors.NewServiceUnavailable("the server ends")
	case a.local[t.node] != nil || have != nil && have.from == t.from && have.to != t.to:
		return apierrors.NewConflict(schema.GroupResource{Resource: "tunnels"}, t.node, errors.New("this agent has a way to this server"))
	case have != nil && !have.isSameAgent(t):
		return &otherError{apierrors.NewConflict(schema.GroupResource{Resource: "tunnels"}, t.node, errors.New("another agent has the tunnel of this node to this server"))}
	case have == nil && len(a.tunnels) >= maxTunnels:
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("%d tunnels are open, and no more are allowed", maxTunnels))
	}
	return nil
}

// put makes a tunnel that of its node, and returns the one that was.
func (a *Agents) put(t *tunnel) (old *tunnel, err error) {
	if err := a.room(t); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errClosed
	}
	old = a.tunnels[t.node]
	a.tunnels[t.node] = t
	return old, nil
}

// drop forgets a tunnel, and says whether it was there.
func (a *Agents) drop(t *tunnel) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tunnels[t.node] != t {
		return false
	}
	delete(a.tunnels, t.node)
	return true
}

// Close ends all tunnels, and opens no more.
func (a *Agents) Close() {
	a.mu.Lock()
	all := a.tunnels
	a.tunnels, a.closed = nil, true
	a.mu.Unlock()
	for _, t := range all {
		t.close()
	}
	a.attempts.Wait()
}

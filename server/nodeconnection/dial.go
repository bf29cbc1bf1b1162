package nodeconnection

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
	// routeHeadStart is how long a route may take to connect before the tunnel is tried too.
	routeHeadStart = 250 * time.Millisecond
	// routePause is how long a route is not tried again after it was slower than the tunnel, or failed.
	routePause = time.Minute
)

// Dial connects to an address of a node: of its agent, of the node itself, or of one of its Pods. It uses a route where
// there is one, and otherwise the tunnel of the node.
func (a *Agents) Dial(ctx context.Context, node, addr string) (net.Conn, error) {
	t := a.tunnel(node)
	if t == nil {
		c, err := a.route(ctx, "tcp", addr)
		if err != nil {
			a.counts.failed.Add(1)
			return nil, fmt.Errorf("node %s cannot be reached, and has no tunnel to this server: %w", node, err)
		}
		a.counts.direct.Add(1)
		return c, nil
	}
	var c net.Conn
	var err error
	direct := false
	if to := t.destination(addr); t.skipsRoute(to, time.Now()) {
		c, err = t.dial(ctx, addr)
	} else {
		c, direct, err = a.dialBoth(ctx, func(ctx context.Context) (net.Conn, error) { return a.route(ctx, "tcp", addr) },
			func(ctx context.Context) (net.Conn, error) { return t.dial(ctx, addr) })
		if err == nil && !direct {
			t.shut[to].Store(time.Now().Add(routePause).UnixNano())
		}
	}
	switch {
	case err != nil:
		a.counts.failed.Add(1)
	case direct:
		a.counts.direct.Add(1)
	default:
		a.counts.tunnel.Add(1)
	}
	return c, err
}

// The destinations of routes: there may be a route to a node and none to its Pods.
const (
	toNode = iota
	toPods
)

// destination returns which destination an address belongs to.
func (t *tunnel) destination(addr string) int {
	if to, err := netip.ParseAddrPort(addr); err == nil && slices.Contains(t.own, to.Addr().Unmap()) {
		return toNode
	}
	return toPods
}

// skipsRoute reports whether only the tunnel is used for a destination.
func (t *tunnel) skipsRoute(place int, now time.Time) bool {
	return t.translated || now.UnixNano() < t.shut[place].Load()
}

// dialed is the result of an attempt.
type dialed struct {
	net.Conn
	err    error
	direct bool
}

// dialBoth tries the route, and the tunnel when the route has failed or takes long. It returns the first connection.
func (a *Agents) dialBoth(ctx context.Context, route, tunnel func(context.Context) (net.Conn, error)) (c net.Conn, direct bool, err error) {
	if !a.startAttempt() {
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
	patience := time.NewTimer(routeHeadStart)
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
			if open > 0 { // the other attempt is cancelled, but may have succeeded just now
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

// startAttempt counts an attempt, unless the server is closing.
func (a *Agents) startAttempt() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.attempts.Add(1)
	}
	return !a.closed
}

// tunnel returns the tunnel of a node; nil for none.
func (a *Agents) tunnel(node string) *tunnel {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tunnels[node]
}

// otherError rejects a tunnel for a node to which another agent has one.
type otherError struct{ *apierrors.StatusError }

func (e *otherError) Unwrap() error { return e.StatusError }

// checkRoom reports why a tunnel may not be opened. A process that finds this server at two addresses keeps one tunnel,
// because two would replace each other forever. A client with another certificate for the same name does not replace an
// open tunnel: it may not be the node.
func (a *Agents) checkRoom(t *tunnel) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.tunnels[t.node]
	switch {
	case a.closed:
		return apierrors.NewServiceUnavailable("the server ends")
	case a.local[t.node] != nil || have != nil && have.from == t.from && have.to != t.to:
		return apierrors.NewConflict(schema.GroupResource{Resource: "tunnels"}, t.node, errors.New("this agent has a way to this server"))
	case have != nil && !have.isSameAgent(t):
		return &otherError{apierrors.NewConflict(schema.GroupResource{Resource: "tunnels"}, t.node,
			errors.New("another agent has the tunnel of this node to this server"))}
	case have == nil && len(a.tunnels) >= maxTunnels:
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("%d tunnels are open, and no more are allowed", maxTunnels))
	}
	return nil
}

// addTunnel makes a tunnel that of its node, and returns the former one.
func (a *Agents) addTunnel(t *tunnel) (old *tunnel, err error) {
	if err := a.checkRoom(t); err != nil {
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

// removeTunnel removes a tunnel, and reports whether it was there.
func (a *Agents) removeTunnel(t *tunnel) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tunnels[t.node] != t {
		return false
	}
	delete(a.tunnels, t.node)
	return true
}

// Close closes all tunnels, and accepts no more.
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

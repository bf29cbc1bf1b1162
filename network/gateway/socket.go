package gateway

import (
	"context"
	"fmt"
	"net"
	"sync"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/internal/connlimit"
	"proa.dev/network/gatewayplan"
	"proa.dev/network/httpproxy"
	"proa.dev/network/proxysync"
)

// maxSockets bounds the ports of all Gateways together.
const maxSockets = 1024

// socketKey names a port of a Gateway.
type socketKey struct {
	gateway key
	port    int32
	secure  bool
}

// socket is a port of the proxy that serves a port of a Gateway.
type socket struct {
	proxy *httpproxy.Proxy
	port  int // of the machine
	stop  context.CancelFunc
	wg    sync.WaitGroup
	ended chan struct{}
}

// close closes the port and waits for requests in flight.
func (k *socket) close() {
	k.stop()
	k.wg.Wait()
}

// openSockets opens the ports that the Gateways of the plan need, configures their routing, and closes all others.
func (s *server) openSockets(ctx context.Context, out *outcome) {
	wanted := map[socketKey]bool{}
	for _, g := range out.Gateways {
		k := proxysync.KeyOf(g)
		for port, secure := range g.Ports() {
			name := socketKey{k, port, secure}
			wanted[name] = true
			have, err := s.socket(ctx, name)
			if err != nil {
				out.failed[k] = gatewayplan.Problem{Reason: string(gw.GatewayReasonNoResources),
					Message: fmt.Sprintf("port %d cannot be served: %v", port, err)}
				s.Log.Warn("a port of a Gateway cannot be served", "gateway", k.String(), "port", port, "err", err)
				continue
			}
			have.proxy.SwapSections(g.Sections(port, s.pools.Use))
			if out.open[k] == nil {
				out.open[k] = map[int32]int{}
			}
			out.open[k][port] = have.port
		}
	}
	for name, k := range s.sockets {
		if !wanted[name] {
			delete(s.sockets, name)
			go k.close()
		}
	}
}

// socket returns the port of the proxy for a port of a Gateway. It opens the port if it is not open.
func (s *server) socket(ctx context.Context, name socketKey) (*socket, error) {
	if k := s.sockets[name]; k != nil {
		select {
		case <-k.ended:
			delete(s.sockets, name) // it was closed by an error
		default:
			return k, nil
		}
	}
	if len(s.sockets) >= maxSockets {
		return nil, fmt.Errorf("there are %d ports of Gateways already", maxSockets)
	}
	l, err := s.Listen(fmt.Sprintf("gateway %s port %d secure %t", name.gateway, name.port, name.secure), ":0")
	if err != nil {
		return nil, err
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("%s is no TCP address", l.Addr())
	}
	ctx, stop := context.WithCancel(ctx)
	k := &socket{port: at.Port, stop: stop, ended: make(chan struct{})}
	k.proxy = httpproxy.NewProxy(httpproxy.Config{HTTPPort: int(name.port), HTTPSPort: int(name.port), Metrics: s.Metrics,
		Answered: s.Answered, Drain: s.Drain, Log: s.Log})
	k.wg.Go(func() {
		defer close(k.ended)
		if err := k.proxy.ServeSections(ctx, s.Connections.Listener(l, "gateway", connlimit.Public), name.secure); err != nil {
			s.Log.Error("a port of a Gateway was closed; it is opened again", "gateway", name.gateway.String(), "port", name.port, "err",
				err)
			s.changes.NoteAll()
		}
	})
	s.sockets[name] = k
	return k, nil
}

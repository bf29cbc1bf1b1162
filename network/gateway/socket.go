package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/route"
)

const (
	// maxClients bounds the clients of one port of a Gateway, maxSockets the ports of all Gateways.
	maxClients = 16384
	maxSockets = 1024
)

// socketKey names a port of a Gateway.
type socketKey struct {
	gateway key
	port    int32
	secure  bool
}

// socket is a port of the proxy that serves a port of a Gateway.
type socket struct {
	proxy *route.Proxy
	port  int // of the machine
	stop  context.CancelFunc
	wg    sync.WaitGroup
	ended chan struct{}
}

// close closes the port, and lets requests that are on their way finish.
func (k *socket) close() {
	k.stop()
	k.wg.Wait()
}

// openSockets opens the ports that Gateways need, closes others, and says what each does.
func (s *server) openSockets(ctx context.Context, out *outcome, pool func(route.Ref) *route.Pool) {
	wanted := map[socketKey]bool{}
	for _, g := range out.gateways {
		k := keyOf(g)
		for port, secure := range portsOf(g) {
			name := socketKey{k, port, secure}
			wanted[name] = true
			have, err := s.socket(ctx, name)
			if err != nil {
				out.lack[k] = verdict{string(gw.GatewayReasonNoResources), fmt.Sprintf("port %d cannot be served: %v", port, err)}
				s.Log.Warn("a port of a Gateway cannot be served", "gateway", k.String(), "port", port, "err", err)
				continue
			}
			have.proxy.SwapSections(sectionsOf(g, port, pool))
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

// socket returns the port of the proxy for a port of a Gateway, and opens it if it is not open.
func (s *server) socket(ctx context.Context, name socketKey) (*socket, error) {
	if k := s.sockets[name]; k != nil {
		select {
		case <-k.ended:
			delete(s.sockets, name) // it was closed by an error, and is opened again
		default:
			return k, nil
		}
	}
	if len(s.sockets) >= maxSockets {
		return nil, fmt.Errorf("there are %d ports of Gateways already", maxSockets)
	}
	l, err := s.Listen("tcp", ":0")
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
	k.proxy = route.NewProxy(route.Config{HTTPPort: int(name.port), HTTPSPort: int(name.port), Metrics: s.Metrics, Log: s.Log})
	k.wg.Go(func() {
		defer close(k.ended)
		if err := k.proxy.ServeSections(ctx, l, name.secure, maxClients); err != nil {
			s.Log.Error("a port of a Gateway was closed; it is opened again", "gateway", name.gateway.String(), "port", name.port, "err", err)
			s.touch(func(d *dirty) { d.all = true })
		}
	})
	s.sockets[name] = k
	return k, nil
}

// sectionsOf are the listeners of a port, as the proxy serves them.
func sectionsOf(g *gateway, port int32, pool func(route.Ref) *route.Pool) (out []route.Section) {
	for _, l := range g.listeners {
		if l.Port != port || !l.serves() {
			continue
		}
		s := route.Section{Host: strings.ToLower(l.host()), Table: route.NewTable(l.rules, pool).AnyDepth(), Stream: l.Protocol == gw.TLSProtocolType}
		s.Certificates = append([]*tls.Certificate(nil), l.certificates...)
		s.ClientCAs, s.Unverified = l.clients.authorities, l.clients.unverified
		out = append(out, s)
	}
	return out
}

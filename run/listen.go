package run

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// APIAddresses are the addresses at which a server with this config listens: that of the setting listen, and with a node the one at which
// the Pods of that node reach the server, if it would listen on loopback only. With several nodes that is on a link which the server makes
// itself, and it is left out here.
func (c *Config) APIAddresses() []string {
	out := []string{c.Listen}
	at, err := netip.ParseAddrPort(c.Listen)
	if err != nil || at.Port() == 0 || c.Nodes > 1 { // without a host it is every address
		return out
	}
	if a, needed := addressForPods(at, c); needed {
		out = append(out, a.String())
	}
	return out
}

// addressForPods is where Pods reach a server that listens at an address. needed says that it has to listen there too: Pods cannot reach
// the loopback interface of the machine.
func addressForPods(at netip.AddrPort, c *Config) (a netip.AddrPort, needed bool) {
	a = facing(at, *c)
	return a, c.Node.Name != "" && at.Addr().IsLoopback() && !a.Addr().IsLoopback()
}

// listen opens the socket, unless the control plane is for this process alone.
func (s *Server) listen() (err error) {
	if s.Alone {
		return nil
	}
	if s.listener, err = listenSoon(s.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w (is another cluster running there? --listen chooses another port)", s.Listen, err)
	}
	if s.everywhere() {
		return nil
	}
	if a, needed := addressForPods(s.advertise(), &s.Config); needed {
		if s.inner, err = listenSoon(a.String()); err != nil {
			return fmt.Errorf("listen on %s for Pods: %w (--node-ip chooses another address)", a, err)
		}
	}
	return nil
}

// everywhere says that the socket is open at every address of the machine.
func (s *Server) everywhere() bool {
	return s.listener != nil && s.listener.Addr().(*net.TCPAddr).IP.IsUnspecified()
}

// listenSoon listens at an address. A process that was killed may need a moment until its sockets are gone.
func listenSoon(address string) (net.Listener, error) {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > 2*time.Second {
			return l, err
		}
	}
}

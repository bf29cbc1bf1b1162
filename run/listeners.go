package run

import (
	"fmt"
	"net"
	"net/netip"

	"proa.dev/run/hostaddress"
)

// APIAddresses returns the addresses at which a server with this configuration listens: that of the setting listen and,
// with a node, the one at which the Pods of that node reach a server that would otherwise listen only on loopback. With
// several nodes the latter is on a bridge that the server creates itself, and is left out here.
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

// addressForPods returns where Pods reach a server that listens at an address. needed tells whether the server must
// listen there too, because Pods cannot reach the loopback interface of the machine.
func addressForPods(at netip.AddrPort, c *Config) (a netip.AddrPort, needed bool) {
	a = c.externalAddress(at)
	return a, c.Node.Name != "" && at.Addr().IsLoopback() && !a.Addr().IsLoopback()
}

// listen opens the listeners, unless the control plane is for this process alone.
func (s *Server) listen() (err error) {
	if s.InProcess {
		return nil
	}
	if s.listener, err = hostaddress.Listen(s.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w (is another cluster running there? --listen chooses another port)", s.Listen, err)
	}
	if s.listensEverywhere() {
		return nil
	}
	if a, needed := addressForPods(s.localAddress(), &s.Config); needed {
		if s.podListener, err = hostaddress.Listen(a.String()); err != nil {
			return fmt.Errorf("listen on %s for Pods: %w (--node-ip chooses another address)", a, err)
		}
	}
	return nil
}

// listensEverywhere tells whether the server listens on all addresses of the machine.
func (s *Server) listensEverywhere() bool {
	return s.listener != nil && s.listener.Addr().(*net.TCPAddr).IP.IsUnspecified()
}

package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"proa.dev/network/conntrack"
)

// connections is the conntrack table of the node, for several callers.
type connections struct {
	mu   sync.Mutex // guards conn, which one caller may use at a time
	conn *conntrack.Conn
}

// openConnections opens the conntrack table of the network namespace that the thread is in.
func openConnections() (*connections, error) {
	conn, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	return &connections{conn: conn}, nil
}

func (c *connections) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Close()
}

// forgetAddresses deletes the conntrack entries of addresses that are free. Established connections are not checked
// against policies again, so the next owner of an address could continue them.
func (c *connections) forgetAddresses(addrs map[netip.Addr]bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.Forget(addrs); err != nil {
		return fmt.Errorf("forget connections of addresses that nobody has any more: %w", err)
	}
	return nil
}

// forgetHostPort deletes the conntrack entries of UDP packets to a host port. The kernel keeps an entry as long as
// packets come, so a client that never pauses would not reach the Pod that has the port now.
func (c *connections) forgetHostPort(port uint16, six bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	filter := conntrack.Filter{Six: six, Protocol: unix.IPPROTO_UDP, To: netip.AddrPortFrom(netip.Addr{}, port)}
	return c.conn.Drop(filter, func(*conntrack.Flow) bool { return true })
}

// forgetUDP deletes the conntrack entries of the UDP host ports of a Pod.
func (n *Network) forgetUDP(r *record) {
	for _, p := range r.Ports {
		if p.Protocol != "udp" {
			continue
		}
		var errs []error
		for _, a := range r.Addresses {
			if p.serves(a) {
				errs = append(errs, n.connections.forgetHostPort(p.HostPort, a.Is6()))
			}
		}
		if err := errors.Join(errs...); err != nil {
			n.Log.Warn("UDP packets to a host port may go to its former Pod for a while", "port", p.HostPort, "err", err)
		}
	}
}

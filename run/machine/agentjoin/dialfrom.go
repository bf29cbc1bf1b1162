package agentjoin

import (
	"context"
	"net"
	"net/netip"
	"time"

	"proa.dev/node/nodestatus"
)

// dialFunc is the type of http.Transport.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

const (
	// dialTimeout is how long a connection may take.
	dialTimeout = 10 * time.Second
	// ownAddressTimeout is how long a connection from a given address may take before any address is used: there may be no
	// route back to it.
	ownAddressTimeout = 3 * time.Second
)

// DialFrom returns how an agent connects to the server: from one of its addresses of --node-ip, so that the server sees
// that the node has the address, and accepts it in its Node. If that does not reach the server, any address is used,
// and an administrator must allow the addresses that the node claims.
func DialFrom(own []netip.Addr) dialFunc {
	plain := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	host := &nodestatus.Host{}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		for _, ip := range own {
			if !fits(ip, addr) || !host.Has(ip) {
				continue
			}
			from := &net.Dialer{Timeout: ownAddressTimeout, KeepAlive: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: ip.AsSlice()}}
			if conn, err := from.DialContext(ctx, network, addr); err == nil {
				return conn, nil
			}
		}
		return plain.DialContext(ctx, network, addr)
	}
}

// fits tells whether a connection from one address to another is possible: both are of one family, and the other is not
// a loopback address. A host name always fits.
func fits(from netip.Addr, to string) bool {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || ip.Unmap().Is4() == from.Is4() && !ip.IsLoopback()
}

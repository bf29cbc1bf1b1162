package machine

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
	// dialPatience is how long a connection may take.
	dialPatience = 10 * time.Second
	// ownPatience is how long one from a given address may take before it is tried from any: there may be no way back to it.
	ownPatience = 3 * time.Second
)

// dialFrom returns how an agent connects to the server: from one of its addresses of --node-ip, so that the server sees that the
// node has it, and lets it say so in its Node. Where that does not lead to the server, any address will do; what the node then
// claims must be allowed by an administrator.
func dialFrom(own []netip.Addr) dialFunc {
	plain := &net.Dialer{Timeout: dialPatience, KeepAlive: 30 * time.Second}
	host := &nodestatus.Host{}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		for _, ip := range own {
			if !fits(ip, addr) || !host.Has(ip) {
				continue
			}
			from := &net.Dialer{Timeout: ownPatience, KeepAlive: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: ip.AsSlice()}}
			if conn, err := from.DialContext(ctx, network, addr); err == nil {
				return conn, nil
			}
		}
		return plain.DialContext(ctx, network, addr)
	}
}

// fits says that a connection from one address to another makes sense: both are of one family, and the other one is not the
// loopback. Of a name that is not known before it is looked up.
func fits(from netip.Addr, to string) bool {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || ip.Unmap().Is4() == from.Is4() && !ip.IsLoopback()
}

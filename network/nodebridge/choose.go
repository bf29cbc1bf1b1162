package nodebridge

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Choose returns a network for the bridge that does not overlap with taken ones. The seed decides where the search
// starts, so that two clusters seldom choose the same.
func Choose(seed string, six bool, taken []netip.Prefix) (netip.Prefix, error) {
	sum := sha256.Sum256([]byte(seed))
	for _, from := range ranges(six) {
		// If a range has more networks than two bytes can count, two bytes of the seed come before them.
		base, bits := from.Addr().As16(), from.Bits()
		width := 24
		if six {
			copy(base[1:6], sum[2:7])
			width, bits = 64, 48
		}
		count := 1 << (width - bits)
		start := (int(sum[0])<<8 + int(sum[1])) % count
		for i := range count {
			p := nth(base, six, (start+i)%count)
			if free(p, taken) {
				return p, nil
			}
		}
	}
	return netip.Prefix{}, errors.New("every network that could connect the nodes of this machine is in use")
}

// ranges returns the ranges to choose from: first the shared address space of carriers (RFC 6598), then private ranges.
func ranges(six bool) []netip.Prefix {
	if six {
		return []netip.Prefix{netip.MustParsePrefix("fd00::/8")}
	}
	return []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	}
}

// nth returns the n-th network after a base.
func nth(base [16]byte, six bool, n int) netip.Prefix {
	if six {
		base[6], base[7] = byte(n>>8), byte(n)
		return netip.PrefixFrom(netip.AddrFrom16(base), 64)
	}
	four := [4]byte(base[12:])
	at := int(four[0])<<16 + int(four[1])<<8 + int(four[2]) + n
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(at >> 16), byte(at >> 8), byte(at), 0}), 24)
}

func free(p netip.Prefix, taken []netip.Prefix) bool {
	for _, t := range taken {
		if p.Overlaps(t) {
			return false
		}
	}
	return true
}

// Taken returns the networks that this machine has routes to, in any routing table. Default routes do not count.
func Taken() (out []netip.Prefix, err error) {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	routes, err := host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		if bits, _ := r.Dst.Mask.Size(); ok && bits > 0 {
			out = append(out, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	return out, nil
}

package servicekind

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// A service that does not ask for an address or a port gets a random one. Each range has a lower band that is used last, so that
// clients who choose for themselves find free ones there.

// The range of node ports.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// lowerBandSize returns the size of the lower band: a fraction of the range within bounds, or 0 for a small range.
func lowerBandSize(size, part, least, most uint64) uint64 {
	if size <= least {
		return 0
	}
	return min(max(size/part, least), most)
}

// pickPort chooses a free node port. random returns a number below n.
func pickPort(taken func(int) bool, random func(n uint64) uint64) (int, bool) {
	const size = lastNodePort - firstNodePort + 1
	low := lowerBandSize(size, 32, 16, 128)
	pick := func(from, count uint64) (int, bool) {
		start := random(count)
		for i := range count {
			if port := firstNodePort + int(from+(start+i)%count); !taken(port) {
				return port, true
			}
		}
		return 0, false
	}
	if port, ok := pick(low, size-low); ok {
		return port, true
	}
	return pick(0, low)
}

// pickAddress chooses a free address of a range. random returns a number below n.
func pickAddress(r netip.Prefix, taken func(netip.Addr) bool, random func(n uint64) uint64) (netip.Addr, bool) {
	first, last := assignableRange(r)
	hosts := countBetween(first, last)
	if hosts == 0 {
		return netip.Addr{}, false
	}
	low := lowerBandSize(countAddresses(r), 16, 16, 256)
	pick := func(from, count uint64) (netip.Addr, bool) {
		if count == 0 {
			return netip.Addr{}, false
		}
		start := random(count)
		for i := range count {
			at := start + i
			if at >= count || at < start {
				at -= count
			}
			if ip := addressAfter(first, from+at); !taken(ip) {
				return ip, true
			}
		}
		return netip.Addr{}, false
	}
	if ip, ok := pick(low, hosts-min(low, hosts)); ok {
		return ip, true
	}
	return pick(0, min(low, hosts))
}

// isAssignable reports whether an address of a range can be allocated: not that of the network, nor the broadcast address.
func isAssignable(r netip.Prefix, ip netip.Addr) bool {
	first, last := assignableRange(r)
	return r.Contains(ip) && !ip.Less(first) && !last.Less(ip)
}

// assignableRange returns the first and the last address of a range that can be allocated.
func assignableRange(r netip.Prefix) (first, last netip.Addr) {
	base, n := r.Masked().Addr(), countAddresses(r)
	if n < math.MaxUint64 {
		n--
	}
	last = addressAfter(base, n)
	if base.Is4() {
		last = last.Prev()
	}
	return base.Next(), last
}

// countAddresses returns the number of addresses in a range, at most the largest uint64.
func countAddresses(r netip.Prefix) uint64 {
	bits := r.Addr().BitLen() - r.Bits()
	if bits >= 64 {
		return math.MaxUint64
	}
	return 1 << bits
}

// countBetween returns the number of addresses from a to b, both included; 0 if b is before a.
func countBetween(a, b netip.Addr) uint64 {
	if b.Less(a) || !b.IsValid() {
		return 0
	}
	x, y := a.As16(), b.As16()
	n := binary.BigEndian.Uint64(y[8:]) - binary.BigEndian.Uint64(x[8:])
	if n == math.MaxUint64 {
		return n
	}
	return n + 1
}

// addressAfter returns the address n after ip.
func addressAfter(ip netip.Addr, n uint64) netip.Addr {
	if ip.Is4() {
		b := ip.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := ip.As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+n)
	if low+n < low {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	return netip.AddrFrom16(b)
}

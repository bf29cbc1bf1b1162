package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// How large a node's network is when nobody says.
const (
	mask4 = 24
	mask6 = 64
	// maxBits bounds the number of networks that one range is divided into.
	maxBits = 20
)

// Range is a network that nodes get equal parts of. A cluster with ranges of both IP families gives every node one part of
// each; of several ranges of one family the first with room is used.
type Range struct {
	CIDR netip.Prefix
	// NodeMask is the length of the prefix that a node gets; 0 stands for 24, or 64 of version 6.
	NodeMask int
}

// Default is what a cluster has when nobody says: room for 256 nodes.
func Default() []Range {
	return []Range{{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 0}), 16), NodeMask: mask4}}
}

// Parse reads ranges as CIDRs. nodeMask4 and nodeMask6 are the lengths of the prefixes that nodes get; 0 stands for 24 and 64.
func Parse(cidrs []string, nodeMask4, nodeMask6 int) ([]Range, error) {
	var out []Range
	for _, text := range cidrs {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("cluster CIDR %q: %w", text, err)
		}
		r := Range{p.Masked(), nodeMask4}
		if p.Addr().Is6() {
			r.NodeMask = nodeMask6
		}
		r = r.Complete()
		switch {
		case r.NodeMask < p.Bits():
			return nil, fmt.Errorf("cluster CIDR %s is smaller than the /%d that a node gets", p, r.NodeMask)
		case r.NodeMask > p.Addr().BitLen():
			return nil, fmt.Errorf("cluster CIDR %s: a node cannot get a /%d of it", p, r.NodeMask)
		case r.NodeMask-p.Bits() > maxBits:
			return nil, fmt.Errorf("cluster CIDR %s has more than %d networks of /%d; give a smaller range or larger networks", p, 1<<maxBits, r.NodeMask)
		}
		for _, other := range out {
			if other.CIDR.Overlaps(r.CIDR) {
				return nil, fmt.Errorf("cluster CIDRs %s and %s overlap", other.CIDR, r.CIDR)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// Complete fills in what is not said.
func (r Range) Complete() Range {
	r.CIDR = r.CIDR.Masked()
	switch {
	case r.NodeMask != 0:
	case r.CIDR.Addr().Is6():
		r.NodeMask = mask6
	default:
		r.NodeMask = mask4
	}
	return r
}

// size is the number of networks in a range.
func (r Range) size() uint32 { return 1 << min(max(r.NodeMask-r.CIDR.Bits(), 0), maxBits) }

// holds says that a network is inside the range.
func (r Range) holds(p netip.Prefix) bool { return r.CIDR.Overlaps(p) && p.Bits() >= r.CIDR.Bits() }

// block is one of the networks in a range, counted from 0.
func (r Range) block(n uint32) netip.Prefix {
	b := r.CIDR.Addr().As16()
	shift := r.CIDR.Addr().BitLen() - r.NodeMask // bits to the right of the number
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if shift < 64 {
		low |= uint64(n) << shift
		if shift > 0 {
			high |= uint64(n) >> (64 - shift)
		}
	} else {
		high |= uint64(n) << (shift - 64)
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	addr := netip.AddrFrom16(b)
	if r.CIDR.Addr().Is4() {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, r.NodeMask)
}

// exhausted says why there is no network, and what to do about it.
func exhausted(full []Range) string {
	var words []string
	for _, r := range full {
		words = append(words, fmt.Sprintf("%s (%d networks of /%d)", r.CIDR, r.size(), r.NodeMask))
	}
	return "Every network for the Pods of a node is taken in " + strings.Join(words, " and ") +
		". Pods on this node get no addresses until another node is deleted or the cluster has a larger range."
}

package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// The default prefix lengths of a node's network.
const (
	mask4 = 24
	mask6 = 64
	// maxBits bounds the number of networks that one range is divided into.
	maxBits = 20
)

// Range is a network that is divided into equal parts for nodes. In a cluster with ranges of both IP families every node gets
// one part of each; of several ranges of one family the first with a free part is used.
type Range struct {
	CIDR netip.Prefix
	// NodeMask is the prefix length of a node's part; 0 stands for 24, or 64 for IPv6.
	NodeMask int
}

// Default returns the default ranges of a cluster, with room for 256 nodes.
func Default() []Range {
	return []Range{{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 0}), 16), NodeMask: mask4}}
}

// Parse parses ranges. nodeMask4 and nodeMask6 are the prefix lengths of nodes' networks; 0 stands for 24 and 64.
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

// Complete fills in defaults.
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

// size returns the number of networks in a range.
func (r Range) size() uint32 { return 1 << min(max(r.NodeMask-r.CIDR.Bits(), 0), maxBits) }

// contains reports whether a network is inside the range.
func (r Range) contains(p netip.Prefix) bool { return r.CIDR.Overlaps(p) && p.Bits() >= r.CIDR.Bits() }

// block returns the n-th network in a range, counted from 0.
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

// exhaustedMessage returns the message of the Event about a node for which there is no network, with what to do about it.
func exhaustedMessage(full []Range) string {
	var words []string
	for _, r := range full {
		words = append(words, fmt.Sprintf("%s (%d networks of /%d)", r.CIDR, r.size(), r.NodeMask))
	}
	return "Every network for the Pods of a node is taken in " + strings.Join(words, " and ") +
		". Pods on this node get no addresses until another node is deleted or the cluster has a larger range."
}

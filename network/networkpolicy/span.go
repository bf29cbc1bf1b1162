package networkpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	utilnet "k8s.io/utils/net"
)

// span is a range of addresses, including the first and the last.
type span struct{ first, last netip.Addr }

func (s span) String() string { return s.first.String() + "-" + s.last.String() }

func (s span) contains(a netip.Addr) bool {
	return a.Is4() == s.first.Is4() && s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0
}

// readBlock returns the addresses of an ipBlock: its network without the exceptions. An invalid block has none.
func readBlock(b *networkingv1.IPBlock) []span {
	whole, ok := readNetwork(b.CIDR)
	if !ok {
		return nil
	}
	out := []span{whole}
	for _, text := range b.Except {
		hole, ok := readNetwork(text)
		if !ok {
			return nil
		}
		out = without(out, hole)
	}
	return out
}

// readNetwork parses a network as leniently as the API server, which accepts leading zeros.
func readNetwork(text string) (span, bool) {
	_, n, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return span{}, false
	}
	first, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if !ok {
		return span{}, false
	}
	if first.Is4In6() {
		if bits < 96 {
			return span{}, false
		}
		first, bits = first.Unmap(), bits-96
	}
	raw := first.AsSlice()
	for i := bits; i < first.BitLen(); i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return span{first, last}, true
}

// without removes the addresses of a hole from spans.
func without(list []span, hole span) (out []span) {
	for _, s := range list {
		if s.first.Is4() != hole.first.Is4() || hole.last.Less(s.first) || s.last.Less(hole.first) {
			out = append(out, s)
			continue
		}
		if s.first.Less(hole.first) {
			out = append(out, span{s.first, hole.first.Prev()})
		}
		if hole.last.Less(s.last) {
			out = append(out, span{hole.last.Next(), s.last})
		}
	}
	return out
}

// merge sorts spans and joins those that touch or overlap.
func merge(list []span) (out []span) {
	slices.SortFunc(list, func(a, b span) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	for _, s := range list {
		if n := len(out); n > 0 && s.first.Is4() == out[n-1].first.Is4() &&
			(s.first.Compare(out[n-1].last) <= 0 || s.first == out[n-1].last.Next()) {
			if out[n-1].last.Less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

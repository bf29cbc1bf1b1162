package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Filter selects entries. The kernel visits all entries either way, but an entry that it leaves out costs a fraction of
// one that it returns. Kernels before 5.8 do not filter by Protocol and To, those before 5.16 not by Unanswered; then
// it is done here.
//
// The kernel is not asked to filter by the reply direction, which some versions get wrong, nor by IPv6 addresses, for
// which some versions invert the filter.
type Filter struct {
	Six      bool
	Protocol uint8 // 0 for all
	// To is the destination of the first packet. An invalid address stands for any, and so does port 0; a port needs a
	// protocol.
	To netip.AddrPort
	// Unanswered selects connections without a reply.
	Unanswered bool
}

// answered is the status bit IPS_SEEN_REPLY.
const answered = 1 << 1

// The parts of a direction that the kernel compares.
const (
	compareTo       = 1 << 1
	compareProtocol = 1 << 3
	compareToPort   = 1 << 5
)

// attrCompareAsked is the attribute of a filter with the flags for the original direction.
const attrCompareAsked = 1

func (f Filter) family() uint8 {
	if f.Six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// has reports whether an entry matches the filter.
func (f Filter) has(c *Flow) bool {
	return c.Asked.To.Addr().Is6() == f.Six &&
		(f.Protocol == 0 || f.Protocol == c.Protocol) &&
		(!f.To.Addr().IsValid() || f.To.Addr() == c.Asked.To.Addr()) &&
		(f.To.Port() == 0 || f.To.Port() == c.Asked.To.Port()) &&
		(!f.Unanswered || c.status&answered == 0)
}

// isNarrow reports whether the filter selects by more than the address family.
func (f Filter) isNarrow() bool { return f != Filter{Six: f.Six} }

// appendTo adds the filter to a request.
func (f Filter) appendTo(b []byte) []byte {
	if f.Unanswered {
		b = appendAttribute(b, attrStatus, 0, 0, 0, 0)
		b = appendAttribute(b, attrStatusMask, binary.BigEndian.AppendUint32(nil, answered)...)
	}
	var compare uint32
	var addresses, ports []byte
	if to := f.To.Addr(); to.Is4() {
		compare |= compareTo
		addresses = appendAttribute(nil, attrTo4, to.AsSlice()...)
	}
	if f.Protocol != 0 {
		compare |= compareProtocol
		ports = appendAttribute(nil, attrProtocol, f.Protocol)
		if port := f.To.Port(); port != 0 {
			compare |= compareToPort
			ports = appendAttribute(ports, attrToPort, binary.BigEndian.AppendUint16(nil, port)...)
		}
	}
	if compare == 0 {
		return b
	}
	asked := appendNested(nil, attrAddresses, addresses)
	if ports != nil {
		asked = appendNested(asked, attrPorts, ports)
	}
	b = appendNested(b, attrAsked, asked)
	return appendNested(b, attrFilter, appendAttribute(nil, attrCompareAsked, binary.NativeEndian.AppendUint32(nil, compare)...))
}

// appendAttribute adds an attribute with padding.
func appendAttribute(b []byte, kind uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attributeHeader+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, aligned(len(value))-len(value))...)
}

// appendNested adds a nested attribute.
func appendNested(b []byte, kind uint16, list []byte) []byte {
	return appendAttribute(b, kind|unix.NLA_F_NESTED, list...)
}

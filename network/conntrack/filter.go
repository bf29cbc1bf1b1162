package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Filter says which connections are looked at. The kernel goes through all that it knows either way, but what it leaves out costs
// a fraction of what it shows. Kernels before 5.8 leave out nothing for Protocol and To, those before 5.16 nothing for Unanswered;
// then it is done here.
//
// The kernel is not asked about the direction of answers, which some that know filters get wrong, nor about addresses of IPv6: it
// shows all but the one that it is asked for.
type Filter struct {
	Six      bool
	Protocol uint8 // 0 for all
	// To is where the first packet went. No address stands for any, and so does port 0; a port needs a protocol.
	To netip.AddrPort
	// Unanswered are connections of which no answer was seen.
	Unanswered bool
}

// answered is the bit of the status that says that there was an answer.
const answered = 1 << 1

// The parts of a direction that the kernel shall compare.
const (
	compareTo       = 1 << 1
	compareProtocol = 1 << 3
	compareToPort   = 1 << 5
)

// attrCompareAsked is the attribute of a filter that says what to compare of the direction of the first packet.
const attrCompareAsked = 1

func (f Filter) family() uint8 {
	if f.Six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// has tells whether a connection is one of those that are asked for.
func (f Filter) has(c *Flow) bool {
	return c.Asked.To.Addr().Is6() == f.Six &&
		(f.Protocol == 0 || f.Protocol == c.Protocol) &&
		(!f.To.Addr().IsValid() || f.To.Addr() == c.Asked.To.Addr()) &&
		(f.To.Port() == 0 || f.To.Port() == c.Asked.To.Port()) &&
		(!f.Unanswered || c.status&answered == 0)
}

// narrow tells whether it asks the kernel for more than a family.
func (f Filter) narrow() bool { return f != Filter{Six: f.Six} }

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

// appendAttribute adds an attribute, and what is missing to the place where the next may begin.
func appendAttribute(b []byte, kind uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attributeHeader+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, aligned(len(value))-len(value))...)
}

// appendNested adds an attribute that is a list of others.
func appendNested(b []byte, kind uint16, list []byte) []byte {
	return appendAttribute(b, kind|unix.NLA_F_NESTED, list...)
}

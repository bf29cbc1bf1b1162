package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Flow is an entry of the table. Unknown fields are zero.
type Flow struct {
	Protocol uint8
	// Asked is the original direction, Answered the reply direction. They differ where addresses are translated.
	Asked, Answered Ends
	// State is the state of a TCP connection, as the kernel numbers states.
	State uint8

	status          uint32
	tuple, id, zone []byte // raw attributes that identify the entry for a deletion
}

// Ends are the source and destination of one direction.
type Ends struct{ From, To netip.AddrPort }

// The attributes of an entry that are read or written.
const (
	attrAsked      = 1
	attrAnswered   = 2
	attrStatus     = 3
	attrState      = 4
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25
	attrStatusMask = 26

	attrAddresses = 1 // of a direction
	attrPorts     = 2

	attrFrom4 = 1 // of addresses
	attrTo4   = 2
	attrFrom6 = 3
	attrTo6   = 4

	attrProtocol = 1 // of ports
	attrFromPort = 2
	attrToPort   = 3

	attrTCP      = 1 // of the state of a connection
	attrTCPState = 1
)

// familyLen is the length of the header before the attributes.
const familyLen = 4

// read parses an entry from a message. It keeps slices of the message, which are valid until the next one is received.
// It returns false if the entry cannot be identified.
func (f *Flow) read(message []byte) bool {
	*f = Flow{}
	if len(message) < familyLen {
		return false
	}
	for a, rest, ok := next(message[familyLen:]); ok; a, rest, ok = next(rest) {
		switch a.kind {
		case attrAsked:
			f.Protocol = f.Asked.read(a.value)
			f.tuple = a.whole
		case attrAnswered:
			f.Answered.read(a.value)
		case attrStatus:
			f.status = number(a.value)
		case attrState:
			f.State = stateOf(a.value)
		case attrID:
			f.id = a.whole
		case attrZone:
			f.zone = a.whole
		}
	}
	return f.Asked.From.IsValid() && f.Asked.To.IsValid()
}

// read parses one direction from its attribute, and returns the protocol.
func (e *Ends) read(b []byte) (protocol uint8) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	for a, rest, ok := next(b); ok; a, rest, ok = next(rest) {
		switch a.kind {
		case attrAddresses:
			from, to = readAddresses(a.value)
		case attrPorts:
			protocol, fromPort, toPort = readPorts(a.value)
		}
	}
	e.From, e.To = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	return protocol
}

func readAddresses(b []byte) (from, to netip.Addr) {
	for a, rest, ok := next(b); ok; a, rest, ok = next(rest) {
		switch a.kind {
		case attrFrom4, attrFrom6:
			from, _ = netip.AddrFromSlice(a.value)
		case attrTo4, attrTo6:
			to, _ = netip.AddrFromSlice(a.value)
		}
	}
	return from, to
}

func readPorts(b []byte) (protocol uint8, from, to uint16) {
	for a, rest, ok := next(b); ok; a, rest, ok = next(rest) {
		switch {
		case a.kind == attrProtocol && len(a.value) >= 1:
			protocol = a.value[0]
		case a.kind == attrFromPort && len(a.value) >= 2:
			from = binary.BigEndian.Uint16(a.value)
		case a.kind == attrToPort && len(a.value) >= 2:
			to = binary.BigEndian.Uint16(a.value)
		}
	}
	return protocol, from, to
}

func stateOf(b []byte) uint8 {
	for a, rest, ok := next(b); ok; a, rest, ok = next(rest) {
		if a.kind != attrTCP {
			continue
		}
		for a, rest, ok := next(a.value); ok; a, rest, ok = next(rest) {
			if a.kind == attrTCPState && len(a.value) >= 1 {
				return a.value[0]
			}
		}
	}
	return 0
}

func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// attribute is a netlink attribute; whole includes its header.
type attribute struct {
	kind         uint16
	value, whole []byte
}

const attributeHeader = 4

// next returns the first attribute of a list. It returns false at the end and before a truncated attribute.
func next(b []byte) (a attribute, rest []byte, ok bool) {
	if len(b) < attributeHeader {
		return attribute{}, nil, false
	}
	n := int(binary.NativeEndian.Uint16(b))
	if n < attributeHeader || n > len(b) {
		return attribute{}, nil, false
	}
	kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return attribute{kind, b[attributeHeader:n], b[:n]}, b[min(aligned(n), len(b)):], true
}

// aligned rounds a length up to the alignment of netlink.
func aligned(n int) int { return (n + 3) &^ 3 }

package nft

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The functions below are for tables of the bridge family.

// Port is the type of an interface name.
func Port() nftables.SetDatatype { return nftables.TypeIFName }

// PortAndAddress is the type of an interface name and an address.
func (f Family) PortAndAddress() nftables.SetDatatype {
	return nftables.MustConcatSetType(nftables.TypeIFName, f.AddrType)
}

// LoadPortIn loads the name of the input interface into the registers.
func LoadPortIn() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}}
}

// LoadPortAndSource loads the input interface and the source address into the registers.
func (f Family) LoadPortAndSource() []expr.Any {
	return append(LoadPortIn(), f.address(f.src, unix.NFT_REG_2))
}

// LoadPortAndClaim loads the input interface and the sender address of an ARP message into the registers.
func LoadPortAndClaim() []expr.Any {
	const sender = 14 // after types, lengths, operation and the hardware address of the sender
	return append(LoadPortIn(), &expr.Payload{DestRegister: unix.NFT_REG_2, Base: expr.PayloadBaseNetworkHeader, Offset: sender, Len: 4})
}

// LoadPortOut loads the name of the output interface into the registers.
func LoadPortOut() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_1}}
}

// ForNode matches frames to the hardware address of the bridge.
func ForNode() []expr.Any { return packetType(unix.PACKET_HOST, expr.CmpOpEq) }

// NotForNode matches all other frames: to another address, multicast or broadcast.
func NotForNode() []expr.Any { return packetType(unix.PACKET_HOST, expr.CmpOpNeq) }

// ForMany matches multicast frames.
func ForMany() []expr.Any { return packetType(unix.PACKET_MULTICAST, expr.CmpOpEq) }

func packetType(kind byte, op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte{kind}}}
}

// Carries matches frames with a protocol, given by its EtherType.
func Carries(protocol uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, protocol)},
	}
}

// InterfaceKey encodes the name of an interface as a key.
func InterfaceKey(name string) []byte {
	out := make([]byte, unix.IFNAMSIZ)
	copy(out, name)
	return out
}

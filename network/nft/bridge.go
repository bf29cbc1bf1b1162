package nft

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words below are those of the bridge: which port may send what.

// Port is the type of the name of an interface.
func Port() nftables.SetDatatype { return nftables.TypeIFName }

// PortAndAddress is the type of the name of an interface and an address.
func (f Family) PortAndAddress() nftables.SetDatatype {
	return nftables.MustConcatSetType(nftables.TypeIFName, f.AddrType)
}

// LoadPortIn puts the name of the interface that a frame came in by into the registers.
func LoadPortIn() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1}}
}

// LoadPortAndSource puts the interface and the source address of a frame into the registers.
func (f Family) LoadPortAndSource() []expr.Any {
	return append(LoadPortIn(), f.address(f.src, unix.NFT_REG_2))
}

// LoadPortAndClaim puts the interface and the address that an ARP message is from into the registers.
func LoadPortAndClaim() []expr.Any {
	const sender = 14 // behind kinds, lengths, operation and the sender's hardware address
	return append(LoadPortIn(), &expr.Payload{DestRegister: unix.NFT_REG_2, Base: expr.PayloadBaseNetworkHeader, Offset: sender, Len: 4})
}

// LoadPortOut puts the name of the interface that a frame leaves by into the registers.
func LoadPortOut() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_1}}
}

// ForNode holds for frames to the hardware address of the bridge itself.
func ForNode() []expr.Any { return packetType(unix.PACKET_HOST, expr.CmpOpEq) }

// NotForNode holds for all other frames: to somebody else, or to many.
func NotForNode() []expr.Any { return packetType(unix.PACKET_HOST, expr.CmpOpNeq) }

// ForMany holds for frames to a group.
func ForMany() []expr.Any { return packetType(unix.PACKET_MULTICAST, expr.CmpOpEq) }

func packetType(kind byte, op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte{kind}}}
}

// Carries holds for frames that carry a protocol, by the number that frames have for it.
func Carries(protocol uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, protocol)},
	}
}

// InterfaceKey writes the name of an interface the way keys hold it.
func InterfaceKey(name string) []byte {
	out := make([]byte, unix.IFNAMSIZ)
	copy(out, name)
	return out
}

package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Family is IPv4 or IPv6, with what differs between them in a rule.
type Family struct {
	proto     byte // as in "meta nfproto"
	src, dst  uint32
	length    uint32
	afterAddr uint32 // the first 32-bit register after an address in the first register
	AddrType  nftables.SetDatatype
	nat       uint32
}

// IPv4 returns the family of IPv4.
func IPv4() Family {
	return Family{unix.NFPROTO_IPV4, 12, 16, 4, reg32(1), nftables.TypeIPAddr, unix.NFPROTO_IPV4}
}

// IPv6 returns the family of IPv6.
func IPv6() Family {
	return Family{unix.NFPROTO_IPV6, 8, 24, 16, reg32(4), nftables.TypeIP6Addr, unix.NFPROTO_IPV6}
}

// Families returns both families.
func Families() []Family { return []Family{IPv4(), IPv6()} }

// Of returns the family of an address.
func Of(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4()
	}
	return IPv6()
}

// Is6 reports whether the family is IPv6.
func (f Family) Is6() bool { return f.proto == unix.NFPROTO_IPV6 }

// Digit returns "4" or "6", for names.
func (f Family) Digit() string {
	if f.Is6() {
		return "6"
	}
	return "4"
}

// Zone is the type of an address and a port.
func (f Family) Zone() nftables.SetDatatype {
	return nftables.MustConcatSetType(f.AddrType, nftables.TypeInetService)
}

// Tuple is the type of an address, protocol and port.
func (f Family) Tuple() nftables.SetDatatype {
	return nftables.MustConcatSetType(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService)
}

// Pair is the type of two addresses.
func (f Family) Pair() nftables.SetDatatype {
	return nftables.MustConcatSetType(f.AddrType, f.AddrType)
}

// reg32 returns the number of a 32-bit register.
func reg32(i uint32) uint32 { return unix.NFT_REG32_00 + i }

// Rule concatenates expressions to a rule.
func Rule(words ...[]expr.Any) (out []expr.Any) {
	for _, w := range words {
		out = append(out, w...)
	}
	return out
}

// Match matches packets of the family.
func (f Family) Match() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
	}
}

func (f Family) address(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length}
}

// From matches if the source is in a network.
func From(p netip.Prefix) []expr.Any {
	f := Of(p.Addr())
	return Rule(f.Match(), f.within(f.src, p, expr.CmpOpEq))
}

// To matches if the destination is in a network.
func To(p netip.Prefix) []expr.Any {
	f := Of(p.Addr())
	return Rule(f.Match(), f.within(f.dst, p, expr.CmpOpEq))
}

// SourceWithin matches if the source is in a network; the family must be matched before.
func SourceWithin(p netip.Prefix) []expr.Any {
	f := Of(p.Addr())
	return f.within(f.src, p, expr.CmpOpEq)
}

func (f Family) within(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	p = p.Masked()
	mask := make([]byte, f.length)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		f.address(offset, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.length, Mask: mask, Xor: make([]byte, f.length)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Addr().AsSlice()},
	}
}

// NotIn matches if the input interface has another name.
func NotIn(name string) []expr.Any { return iface(expr.MetaKeyIIFNAME, name, expr.CmpOpNeq) }

// Out matches if the output interface has the name.
func Out(name string) []expr.Any { return iface(expr.MetaKeyOIFNAME, name, expr.CmpOpEq) }

// NotOut matches if the output interface has another name.
func NotOut(name string) []expr.Any { return iface(expr.MetaKeyOIFNAME, name, expr.CmpOpNeq) }

func iface(key expr.MetaKey, name string, op expr.CmpOp) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: padded}}
}

// ToLocal matches if the destination is an address of this node.
func ToLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Native(unix.RTN_LOCAL)},
	}
}

// Translated matches if the destination of the connection was translated (DNAT).
func Translated() []expr.Any {
	const dnat = 1 << 5 // IPS_DST_NAT
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(dnat), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Protocol matches packets of a transport protocol.
func Protocol(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

// ICMPType matches ICMP messages of a type; the protocol must be matched before.
func ICMPType(kind byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}},
	}
}

// LoadTuple loads destination address, protocol and port into the registers, as a key of type Tuple.
func (f Family) LoadTuple() []expr.Any {
	return []expr.Any{f.address(f.dst, 1), l4proto(f.afterAddr), dport(f.afterAddr + 1)}
}

// LoadPort loads protocol and destination port into the registers.
func LoadPort() []expr.Any { return []expr.Any{l4proto(reg32(0)), dport(reg32(1))} }

// LoadPair loads source and destination address into the registers.
func (f Family) LoadPair() []expr.Any {
	return []expr.Any{f.address(f.src, 1), f.address(f.dst, f.afterAddr)}
}

// LoadSource loads the source address into the registers.
func (f Family) LoadSource() []expr.Any { return []expr.Any{f.address(f.src, 1)} }

func l4proto(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}
}

func dport(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// Element matches if the loaded key is in the set.
func Element(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}}
}

// Find replaces the loaded key by its value in a map, and matches if there is one.
func Find(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// Translate changes the destination to the loaded address and port.
func (f Family) Translate() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.nat, RegAddrMin: 1, RegProtoMin: f.afterAddr, Specified: true}}
}

// Masquerade changes the source to the address of the output interface.
func Masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// Jump jumps to a chain and returns.
func Jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// Goto jumps to a chain without return.
func Goto(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// Return returns from the chain.
func Return() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// Drop drops the packet.
func Drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// Key encodes addresses, protocols and ports as keys and values of sets: each padded to 32 bits.
func Key(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch v := p.(type) {
		case netip.Addr:
			out = append(out, v.Unmap().AsSlice()...)
		case uint8:
			out = append(out, v, 0, 0, 0)
		case uint16:
			out = append(binary.BigEndian.AppendUint16(out, v), 0, 0)
		}
	}
	return out
}

// TunnelID matches VXLAN packets with a network identifier; that they are UDP to the port of VXLAN must be matched
// before.
func TunnelID(id int) []expr.Any {
	const behindUDP = 8 + 4 // the UDP header, and the flags of VXLAN, in bytes
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: behindUDP, Len: 3},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(id >> 16), byte(id >> 8), byte(id)}},
	}
}

// ToPort matches packets to a port; the protocol must be matched before.
func ToPort(port uint16) []expr.Any {
	return []expr.Any{dport(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)}}
}

package nft

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The functions below are for Services: packets are matched by their destination, and one of many endpoints is chosen.

// Switch applies the verdict of a verdict map for the loaded key. If the map has none, the next rule follows.
func Switch(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// LoadDestination loads the destination address into the registers.
func (f Family) LoadDestination() []expr.Any { return []expr.Any{f.address(f.dst, 1)} }

// FromLocal matches if the source is an address of this node.
func FromLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Native(unix.RTN_LOCAL)},
	}
}

// RejectTCP answers with a TCP reset, which a TCP socket handles at once. An ICMP error that arrives while connect is
// still sending, as between a Pod and its node, is ignored, and the client retries after a second. The protocol must be
// matched before.
func RejectTCP() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

// Reject answers with the ICMP error port unreachable.
func Reject() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}
}

// SetMark sets a bit of the packet mark.
func SetMark(bit uint32) []expr.Any { return mark(^bit, bit) }

// FlipMark toggles a bit of the packet mark.
func FlipMark(bit uint32) []expr.Any { return mark(^uint32(0), bit) }

func mark(mask, xor uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(mask), Xor: Native(xor)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// HasMark matches if a bit of the packet mark is set.
func HasMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Numbers is the type of an address, protocol and port with a number.
func (f Family) Numbers() nftables.SetDatatype {
	return nftables.MustConcatSetType(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark)
}

// Numbered adds a random number below count to what LoadTuple has loaded.
func (f Family) Numbered(count uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: f.afterAddr + 2, Modulus: count, Type: unix.NFT_NG_RANDOM}}
}

// Random loads a random number from first to first+count-1.
func Random(count, first uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: 1, Modulus: count, Type: unix.NFT_NG_RANDOM, Offset: first}}
}

// The functions below are for session affinity. A map has the number of the endpoint for each client, another one the
// endpoint of each number.
//
// nft up to 1.0.6 assumes that the result of a lookup has no length, and aborts when it reads a rule that uses such a
// result for another lookup or writes it into a map. So a number from a lookup goes through the priority of the packet,
// which is zero for incoming packets, is set again for forwarded ones, and is reset to zero here. NAT chains see only
// the first packet of a connection.
//
// The address of the client is in the first 16 bytes of the registers.
const (
	clientRegister = unix.NFT_REG_1
	numberRegister = unix.NFT_REG_3
)

// readNumber moves the result of a lookup to where other expressions can use it.
func readNumber() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: numberRegister},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: numberRegister},
	}
}

// ClearNumber resets the priority of the packet.
func ClearNumber() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: numberRegister, Data: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: numberRegister},
	}
}

// LoadRemembered loads the number of the client from a map, and matches if there is one.
func (f Family) LoadRemembered(clients *nftables.Set) []expr.Any {
	return Rule(f.LoadSource(), []expr.Any{
		&expr.Lookup{SourceRegister: clientRegister, DestRegister: numberRegister, IsDestRegSet: true, SetName: clients.Name,
			SetID: clients.ID},
	}, readNumber())
}

// LoadChosen loads the number of a random endpoint out of count, beside the address of the client.
func (f Family) LoadChosen(count uint32, numbers *nftables.Set) []expr.Any {
	return Rule(f.LoadSource(), []expr.Any{
		&expr.Numgen{Register: numberRegister, Modulus: count, Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: numberRegister, DestRegister: numberRegister, IsDestRegSet: true, SetName: numbers.Name,
			SetID: numbers.ID},
	}, readNumber())
}

// LoadEndpoint loads the endpoint of the number from a map, and matches if there is one.
func LoadEndpoint(endpoints *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: numberRegister, DestRegister: 1, IsDestRegSet: true, SetName: endpoints.Name,
		SetID: endpoints.ID}}
}

// HasEndpoint matches if a map has the loaded number.
func HasEndpoint(good *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: numberRegister, SetName: good.Name, SetID: good.ID}}
}

// The operations on maps in rules.
const (
	opUpdate = 1
	opDelete = 2
)

// RememberClient writes the loaded number into the map for the client, or renews its timeout, and matches if there was
// room. It does not change the number of a client.
func RememberClient(clients *nftables.Set, howLong time.Duration) []expr.Any {
	return changeClient(clients, opUpdate, howLong)
}

// ForgetClient deletes the entry of the client from the map, if there is one. The kernel requires a loaded number for
// this too.
func ForgetClient(clients *nftables.Set) []expr.Any { return changeClient(clients, opDelete, 0) }

func changeClient(clients *nftables.Set, operation uint32, howLong time.Duration) []expr.Any {
	return []expr.Any{&expr.Dynset{
		SrcRegKey: clientRegister, SrcRegData: numberRegister, SetName: clients.Name, SetID: clients.ID, Operation: operation,
		Timeout: howLong,
	}}
}

// Native encodes a number in the byte order of this machine, which registers use.
func Native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

package nft

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words below are those of Services: packets are told apart by what they are sent to, and one of many endpoints is chosen.

// Switch goes where a map of verdicts says for what was loaded. It goes on if the map says nothing.
func Switch(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// LoadDestination puts the destination address into the registers.
func (f Family) LoadDestination() []expr.Any { return []expr.Any{f.address(f.dst, 1)} }

// FromLocal holds when the source is an address of this node.
func FromLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Native(unix.RTN_LOCAL)},
	}
}

// RejectTCP answers that the port is closed, with a reset: a TCP socket takes note of that at once. It does not of an ICMP message that
// arrives while the call to connect is still sending, as between a Pod and its node, and sends again after a second. The protocol must
// be matched before.
func RejectTCP() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

// Reject answers that the port is closed, with an ICMP message.
func Reject() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}
}

// SetMark sets a bit of the packet's mark.
func SetMark(bit uint32) []expr.Any { return mark(^bit, bit) }

// FlipMark turns a bit of the packet's mark around.
func FlipMark(bit uint32) []expr.Any { return mark(^uint32(0), bit) }

func mark(mask, xor uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(mask), Xor: Native(xor)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// HasMark holds when a bit of the packet's mark is set.
func HasMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Numbers is the type of what a Service listens on, with a number.
func (f Family) Numbers() nftables.SetDatatype {
	return nftables.MustConcatSetType(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark)
}

// Numbered adds a random number below count to what LoadTuple has loaded.
func (f Family) Numbered(count uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: f.afterAddr + 2, Modulus: count, Type: unix.NFT_NG_RANDOM}}
}

// Random loads a number from first to first+count-1.
func Random(count, first uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: 1, Modulus: count, Type: unix.NFT_NG_RANDOM, Offset: first}}
}

// The words below are those of session affinity: clients that stay with their endpoint. A map has a number for each client, another
// one the endpoint of each number.
//
// nft up to 1.0.6 takes the result of a lookup to have no length, and aborts when it reads a rule that looks such a result up once more,
// or writes it into a map. So a number that was looked up goes through the priority of the packet, which is zero for packets that come in,
// is set anew for those that are forwarded, and is set back to zero here. NAT chains see only the first packet of a connection.
//
// The client's address is in the first 16 bytes of the registers.
const (
	clientRegister = unix.NFT_REG_1
	numberRegister = unix.NFT_REG_3
)

// readNumber puts a number that was looked up where other expressions can use it.
func readNumber() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: numberRegister},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: numberRegister},
	}
}

// ClearNumber takes the number back that the packet has as its priority.
func ClearNumber() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: numberRegister, Data: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: numberRegister},
	}
}

// LoadRemembered loads the number that a map has for the client, and holds when the map has one.
func (f Family) LoadRemembered(clients *nftables.Set) []expr.Any {
	return Rule(f.LoadSource(), []expr.Any{
		&expr.Lookup{SourceRegister: clientRegister, DestRegister: numberRegister, IsDestRegSet: true, SetName: clients.Name, SetID: clients.ID},
	}, readNumber())
}

// LoadChosen loads the number of a random endpoint out of count, beside the client's address.
func (f Family) LoadChosen(count uint32, numbers *nftables.Set) []expr.Any {
	return Rule(f.LoadSource(), []expr.Any{
		&expr.Numgen{Register: numberRegister, Modulus: count, Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: numberRegister, DestRegister: numberRegister, IsDestRegSet: true, SetName: numbers.Name, SetID: numbers.ID},
	}, readNumber())
}

// LoadEndpoint loads the endpoint that a map has for the number, and holds when the map has one.
func LoadEndpoint(endpoints *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: numberRegister, DestRegister: 1, IsDestRegSet: true, SetName: endpoints.Name, SetID: endpoints.ID}}
}

// HasEndpoint holds when a set has the number that was loaded.
func HasEndpoint(good *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: numberRegister, SetName: good.Name, SetID: good.ID}}
}

// The operations on maps that rules can do.
const (
	opUpdate = 1
	opDelete = 2
)

// RememberClient writes the number that was loaded into the map for the client, or renews the time it is kept, and holds when there
// was room. It does not change which number a client has.
func RememberClient(clients *nftables.Set, howLong time.Duration) []expr.Any {
	return changeClient(clients, opUpdate, howLong)
}

// ForgetClient deletes what the map has for the client, if anything. The kernel wants a number to be loaded for this too.
func ForgetClient(clients *nftables.Set) []expr.Any { return changeClient(clients, opDelete, 0) }

func changeClient(clients *nftables.Set, operation uint32, howLong time.Duration) []expr.Any {
	return []expr.Any{&expr.Dynset{
		SrcRegKey: clientRegister, SrcRegData: numberRegister, SetName: clients.Name, SetID: clients.ID, Operation: operation, Timeout: howLong,
	}}
}

// Native writes a number the way this machine does, which is how registers hold it.
func Native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

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

// Reject answers that the port is closed.
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

// The registers of rules about clients that stay with their endpoint: the client's address is in the first, the endpoint
// begins in the second.
const (
	clientRegister   = unix.NFT_REG_1
	endpointRegister = unix.NFT_REG_2
)

// afterEndpoint is the register that holds the port of an endpoint that begins in the second register.
func (f Family) afterEndpoint() uint32 { return f.afterAddr + 4 }

// Remembered loads the endpoint that a map has for the client, and holds when it is still in the set of good ones.
func (f Family) Remembered(clients, good *nftables.Set) []expr.Any {
	return append(f.LoadSource(),
		&expr.Lookup{SourceRegister: clientRegister, DestRegister: endpointRegister, IsDestRegSet: true, SetName: clients.Name, SetID: clients.ID},
		&expr.Lookup{SourceRegister: endpointRegister, SetName: good.Name, SetID: good.ID},
	)
}

// Chosen loads a random endpoint, beside the client's address.
func (f Family) Chosen(count, first uint32, endpoints *nftables.Set) []expr.Any {
	return append([]expr.Any{
		&expr.Numgen{Register: endpointRegister, Modulus: count, Type: unix.NFT_NG_RANDOM, Offset: first},
		&expr.Lookup{SourceRegister: endpointRegister, DestRegister: endpointRegister, IsDestRegSet: true, SetName: endpoints.Name, SetID: endpoints.ID},
	}, f.LoadSource()...)
}

// The operations on maps that rules can do.
const (
	opUpdate = 1
	opDelete = 2
)

// Remember writes the endpoint that was loaded into the map for the client, or renews the time it is kept, and holds when there
// was room. It does not change which endpoint a client has.
func (f Family) Remember(clients *nftables.Set, howLong time.Duration) []expr.Any {
	return []expr.Any{f.client(clients, opUpdate, howLong)}
}

// Forget deletes what the map has for the client, if anything. The kernel wants an endpoint to be loaded for this too.
func (f Family) Forget(clients *nftables.Set) []expr.Any {
	return []expr.Any{f.client(clients, opDelete, 0)}
}

func (f Family) client(clients *nftables.Set, operation uint32, howLong time.Duration) expr.Any {
	return &expr.Dynset{
		SrcRegKey: clientRegister, SrcRegData: endpointRegister, SetName: clients.Name, SetID: clients.ID, Operation: operation, Timeout: howLong,
	}
}

// TranslateChosen changes the destination to the endpoint that was loaded by Remembered or Chosen.
func (f Family) TranslateChosen() []expr.Any {
	return []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: f.nat, RegAddrMin: endpointRegister, RegProtoMin: f.afterEndpoint(), Specified: true,
	}}
}

// Native writes a number the way this machine does, which is how registers hold it.
func Native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

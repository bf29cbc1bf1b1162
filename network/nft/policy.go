package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The words below are those of policies: who may begin to talk to whom.

// Known holds for packets of connections that were let through when they began, and for what belongs to them: answers, and
// errors about them.
func Known() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Accept lets the packet go on, past the rest of this chain and those that led here.
func Accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// ToPorts holds for packets to a range of ports; the protocol must be matched before.
func ToPorts(first, last uint16) []expr.Any {
	return []expr.Any{dport(1), &expr.Range{
		Op: expr.CmpOpEq, Register: 1, FromData: binary.BigEndian.AppendUint16(nil, first), ToData: binary.BigEndian.AppendUint16(nil, last),
	}}
}

// Span is the elements that stand for a range of addresses in a set of intervals. One that goes to the last address there is
// has no end.
func Span(first, last netip.Addr) []nftables.SetElement {
	out := []nftables.SetElement{{Key: first.AsSlice()}}
	if end := last.Next(); end.IsValid() {
		out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
	}
	return out
}

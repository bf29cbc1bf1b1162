package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The functions below are for network policies.

// Known matches packets of established connections and those related to them, such as ICMP errors.
func Known() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Native(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Accept accepts the packet: the rest of this chain and of those that led here is skipped.
func Accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// ToPorts matches packets to a range of ports; the protocol must be matched before.
func ToPorts(first, last uint16) []expr.Any {
	return []expr.Any{dport(1), &expr.Range{
		Op: expr.CmpOpEq, Register: 1, FromData: binary.BigEndian.AppendUint16(nil, first),
		ToData: binary.BigEndian.AppendUint16(nil, last),
	}}
}

// Span returns the elements for a range of addresses in an interval set. A range up to the last possible address has no
// end element.
func Span(first, last netip.Addr) []nftables.SetElement {
	out := []nftables.SetElement{{Key: first.AsSlice()}}
	if end := last.Next(); end.IsValid() {
		out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
	}
	return out
}

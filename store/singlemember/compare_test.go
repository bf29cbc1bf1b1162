package singlemember

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// TestSameResponsesAsEtcd sends the same requests to a member of this package and to an etcd server, and compares responses and
// errors.
func TestSameResponsesAsEtcd(t *testing.T) {
	o := startMember(t, false, config(t.TempDir()))
	defer o.stop(t)
	g := startMember(t, true, config(t.TempDir()))
	defer g.stop(t)
	ctx := t.Context()

	granted := int64(0)
	for i, ttl := range []int64{longTTL, 60, 1, 0, -1, 10_000_000_000} {
		a, errA := o.grant(ctx, ttl, 0)
		id := int64(i + 100)
		if errA == nil {
			id = a.ID
			if granted == 0 {
				granted = id
			}
		}
		b, errB := g.grant(ctx, ttl, id)
		compareResponses(t, fmt.Sprint("grant ", ttl), a, b, errA, errB)
		if ttl < 60 && errA == nil {
			compareResponses[*pb.TxnResponse](t, "revoke", nil, nil, o.revoke(ctx, id), g.revoke(ctx, id))
		}
	}
	txn := func(r *pb.TxnRequest) {
		t.Helper()
		a, errA := o.Txn(ctx, proto.CloneOf(r))
		b, errB := g.Txn(ctx, r)
		compareResponses(t, prototext.Format(r), a, b, errA, errB)
	}
	for _, ops := range opsOfEveryKind(granted) {
		txn(&pb.TxnRequest{Success: ops})
	}
	for _, c := range comparesOfEveryKind(granted) {
		txn(&pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{putOp("yes", "1", 0)},
			Failure: []*pb.RequestOp{putOp("no", "1", 0), rangeOp("a", "z", 0)}})
		txn(&pb.TxnRequest{Compare: []*pb.Compare{c, modIs("a", 1)}, Success: []*pb.RequestOp{rangeOp("a", "", 0)},
			Failure: []*pb.RequestOp{rangeOp("b", "", 0)}})
		txn(&pb.TxnRequest{Compare: []*pb.Compare{c}})
	}
	for _, rev := range []int64{5, 5, 3, 0, -1, 8, 1 << 40} {
		compareResponses[*pb.TxnResponse](t, fmt.Sprint("compact ", rev), nil, nil, o.compact(ctx, rev), g.compact(ctx, rev))
		for _, at := range []int64{1, 7, 8, 9, 1 << 40} {
			txn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("c", "1", 0), rangeOp("a", "z", at)}})
		}
	}
	compareResponses[*pb.TxnResponse](t, "revoke", nil, nil, o.revoke(ctx, granted), g.revoke(ctx, granted))
	compareResponses[*pb.TxnResponse](t, "revoke again", nil, nil, o.revoke(ctx, granted), g.revoke(ctx, granted))
	txn(&pb.TxnRequest{Success: []*pb.RequestOp{rangeOp("\x00", "\x00", 0)}})
	txn(put("big", string(make([]byte, 3<<19))))
	if a, b := pairs(t, o.KV(), 0), pairs(t, g.KV(), 0); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("we have %v; etcd has %v", a, b)
	}
}

func compareResponses[T proto.Message](t *testing.T, what string, a, b T, errA, errB error) {
	t.Helper()
	if fmt.Sprint(errA) != fmt.Sprint(errB) {
		t.Errorf("%s: our error is %v; etcd's is %v", what, errA, errB)
		return
	}
	if errA == nil && !proto.Equal(withoutIDs(a), withoutIDs(b)) {
		t.Errorf("%s: we answer %v; etcd answers %v", what, a, b)
	}
}

// withoutIDs returns a copy of a response without the IDs of the member and the cluster.
func withoutIDs(r proto.Message) proto.Message {
	if h, ok := r.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().ClusterId, h.GetHeader().MemberId, h.GetHeader().RaftTerm = 0, 0, 0
	}
	return r
}

// opsOfEveryKind returns lists of operations, together of every kind.
func opsOfEveryKind(lease int64) [][]*pb.RequestOp {
	full := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	get := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	return [][]*pb.RequestOp{
		{putOp("a", "1", 0)},
		{putOp("a", "2", 0), putOp("b", "2", lease)},
		{putOp("d", "3", 12345)},
		{putOp("c", "", 0), deleteOp("c", "")},
		{full(&pb.PutRequest{Key: []byte("a"), Value: []byte("3"), PrevKv: true})},
		{full(&pb.PutRequest{Key: []byte("a"), IgnoreValue: true, Lease: lease})},
		{full(&pb.PutRequest{Key: []byte("a"), Value: []byte("4"), IgnoreLease: true})},
		{full(&pb.PutRequest{Key: []byte("none"), IgnoreValue: true})},
		{deleteOp("none", "")},
		{putOp("x1", "1", 0), putOp("x2", "1", 0), putOp("x3", "1", 0)},
		{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("x1"), RangeEnd: []byte("x3"),
			PrevKv: true}}}},
		{putOp("e", "1", 0), rangeOp("a", "z", 0), deleteOp("e", ""), rangeOp("e", "", 0)},
		{get(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Limit: 1})},
		{get(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), CountOnly: true}), putOp("a", "5", 0)},
		{get(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), KeysOnly: true, SortOrder: pb.RangeRequest_DESCEND}),
			putOp("a", "6", 0)},
		{rangeOp("a", "", 2), putOp("a", "7", 0)},
		{rangeOp("a", "", 1<<40), putOp("a", "8", 0)},
		{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", 1)},
			Failure: []*pb.RequestOp{putOp("f", "1", 0)}}}}},
		{},
	}
}

// comparesOfEveryKind returns conditions of every kind, some that are true and some that are not.
func comparesOfEveryKind(lease int64) []*pb.Compare {
	var all []*pb.Compare
	for _, key := range []string{"a", "b", "none"} {
		for op := range int32(4) {
			r := pb.Compare_CompareResult(op)
			for n := range int64(4) {
				all = append(all,
					&pb.Compare{Key: []byte(key), Result: r, Target: pb.Compare_MOD,
						TargetUnion: &pb.Compare_ModRevision{ModRevision: n * 2}},
					&pb.Compare{Key: []byte(key), Result: r, Target: pb.Compare_CREATE,
						TargetUnion: &pb.Compare_CreateRevision{CreateRevision: n}},
					&pb.Compare{Key: []byte(key), Result: r, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: n}})
			}
			all = append(all,
				&pb.Compare{Key: []byte(key), Result: r, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("2")}},
				&pb.Compare{Key: []byte(key), Result: r, Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: lease}})
		}
	}
	return append(all, &pb.Compare{Key: []byte("a"), RangeEnd: []byte("z"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,
		TargetUnion: &pb.Compare_Version{}})
}

package store

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"proa.dev/kv"
)

// Commit makes all writes at one revision, or none. If a condition does not hold, the error is a *kv.Conflict with the
// current pair. A transaction that only checks conditions returns the revision at which they held.
func (e *Etcd) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	if len(writes) == 0 {
		return e.Revision(ctx)
	}
	first := writes[0].Key
	ctx, end, err := e.begin(ctx, "commit", first)
	if err != nil {
		return 0, err
	}
	defer end()
	resp, err := e.transact(ctx, writes)
	if err != nil {
		return 0, wrapError("commit", first, err)
	}
	if !resp.Succeeded {
		c := conflictOf(writes, resp)
		e.member.saw(c.Key, sawRev(c.Now, resp.Header.Revision))
		return 0, c
	}
	rev := resp.Header.Revision
	e.countWritten(writes)
	for i := range writes {
		if w := &writes[i]; !w.Keep {
			e.member.saw(w.Key, rev)
		}
	}
	return rev, nil
}

// countWritten counts the bytes of writes, and asks for a round of compaction when there are many.
func (e *Etcd) countWritten(writes []kv.Write) {
	size := int64(0)
	for i := range writes {
		size += int64(len(writes[i].Value))
	}
	if e.written.Add(size) >= e.historyBytes {
		e.written.Store(0)
		e.compactSoon.Send()
	}
}

// transact sends the writes, with leases for those that expire. If a lease has expired meanwhile, etcd writes nothing;
// then transact retries once with a new lease.
func (e *Etcd) transact(ctx context.Context, writes []kv.Write) (*pb.TxnResponse, error) {
	for try := 0; ; try++ {
		ids, err := e.leasesFor(ctx, writes)
		if err != nil {
			return nil, err
		}
		resp, err := e.member.txn(ctx, transaction(writes, ids), slices.ContainsFunc(writes, func(w kv.Write) bool { return w.UseReserve }))
		if isLeaseExpired(err) && try == 0 {
			e.leases.forget(ids)
			continue
		}
		return resp, err
	}
}

// txnParts has all objects of one write in a transaction, so that they are allocated together.
type txnParts struct {
	compare pb.Compare
	modRev  pb.Compare_ModRevision

	then   pb.RequestOp
	thenIs struct {
		put pb.RequestOp_RequestPut
		del pb.RequestOp_RequestDeleteRange
	}
	put pb.PutRequest
	del pb.DeleteRangeRequest

	otherwise pb.RequestOp
	lookIs    pb.RequestOp_RequestRange
	look      pb.RangeRequest
}

// transaction builds the etcd transaction of the writes: when every key is at its revision, change them all;
// otherwise read them all. leases has the lease of each write, or is nil when none has one.
func transaction(writes []kv.Write, leases []int64) *pb.TxnRequest {
	parts := make([]txnParts, len(writes))
	ops := make([]*pb.RequestOp, 2*len(writes))
	req := &pb.TxnRequest{
		Compare: make([]*pb.Compare, len(writes)),
		Success: ops[:0:len(writes)],
		Failure: ops[len(writes):],
	}
	for i := range writes {
		w, p, key := &writes[i], &parts[i], []byte(writes[i].Key)

		p.modRev.ModRevision = w.Rev
		p.compare.Key = key
		p.compare.Target = pb.Compare_MOD
		p.compare.Result = pb.Compare_EQUAL
		p.compare.TargetUnion = &p.modRev
		req.Compare[i] = &p.compare

		switch {
		case w.Keep || w.Value == nil && w.Rev == 0:
			// Nothing to do, or nothing to delete.
		case w.Value == nil:
			p.del.Key = key
			p.thenIs.del.RequestDeleteRange = &p.del
			p.then.Request = &p.thenIs.del
			req.Success = append(req.Success, &p.then)
		default:
			p.put.Key, p.put.Value = key, w.Value
			if leases != nil {
				p.put.Lease = leases[i]
			}
			p.thenIs.put.RequestPut = &p.put
			p.then.Request = &p.thenIs.put
			req.Success = append(req.Success, &p.then)
		}

		p.look.Key = key
		p.lookIs.RequestRange = &p.look
		p.otherwise.Request = &p.lookIs
		req.Failure[i] = &p.otherwise
	}
	return req
}

// conflictOf returns the first write whose condition did not hold, from the response of a transaction that failed.
func conflictOf(writes []kv.Write, resp *pb.TxnResponse) *kv.Conflict {
	last := &kv.Conflict{}
	for i := range writes {
		now := kv.Pair{}
		if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			now = pairOf(kvs[0])
		}
		last = &kv.Conflict{Key: writes[i].Key, Now: now}
		if now.Rev != writes[i].Rev {
			return last
		}
	}
	return last
}

// sawRev returns the revision that a reader has seen of a key: that of the pair, or if there is none the revision of
// the read, because the key may have been deleted just before.
func sawRev(p kv.Pair, at int64) int64 {
	if p.Rev != 0 {
		return p.Rev
	}
	return at
}

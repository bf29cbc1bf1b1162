package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"proa.dev/kv"
)

// compactKey is the key through which the servers on one etcd agree who compacts. Its name, and that its
// version counts the rounds, is what other API servers use, too.
const compactKey = "compact_rev_key"

// Compact forgets the history before rev. To compact what is compacted already is no error.
func (e *Etcd) Compact(ctx context.Context, rev int64) error {
	ctx, end, err := e.begin(ctx, "compact", "")
	if err != nil {
		return err
	}
	defer end()
	err = fail("compact", "", e.member.compact(ctx, rev))
	if errors.Is(err, kv.ErrCompacted) {
		return nil
	}
	return err
}

// RunCompaction forgets history that is older than one to two intervals, until ctx ends. It may run in every
// server on the same etcd; one of them does the work of each round. A round that fails is left to the next.
func (e *Etcd) RunCompaction(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var r round
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r = e.compactRound(ctx, r)
		}
	}
}

// round is what a server knows after a round of compaction: how many there have been, the revision then, and that of the
// last write by which this server moved the store on.
type round struct{ count, rev, own int64 }

// compactRound compacts at the revision of the last round, if no other server has done so since. What fails is done by the
// next round.
func (e *Etcd) compactRound(ctx context.Context, last round) round {
	next, mine, err := e.nextRound(ctx, last)
	if err != nil {
		return last
	}
	// What our own write has left need not be forgotten: after it a store at rest is left alone.
	if !mine || last.rev == 0 || next.rev == last.own {
		return next
	}
	done, err := e.forget(ctx, last.rev, next)
	if err != nil {
		e.log.WarnContext(ctx, "history is not compacted", "rev", last.rev, "err", err)
		return round{next.count, last.rev, last.own}
	}
	return done
}

// forget compacts what was before the end of the last round. The state of its very end is forgotten too, so that nobody
// reads it for ever in a store that is at rest; for that the store must have moved on, if need be by a write of our own.
func (e *Etcd) forget(ctx context.Context, rev int64, next round) (round, error) {
	if next.rev == rev {
		now, err := e.moveOn(ctx, rev)
		if errors.Is(err, kv.ErrFull) {
			return next, e.Compact(ctx, rev) // it must forget all the more
		}
		if err != nil {
			return next, err
		}
		next.rev, next.own = now, now
	}
	return next, e.Compact(ctx, rev+1)
}

func (e *Etcd) moveOn(ctx context.Context, rev int64) (int64, error) {
	p, _, err := e.Get(ctx, compactKey)
	if err != nil {
		return 0, err
	}
	return e.Commit(ctx, kv.Write{Key: compactKey, Value: strconv.AppendInt(nil, rev, 10), Rev: p.Rev})
}

// nextRound opens a round and says whether it is this server's. A server alone with its etcd needs no key.
func (e *Etcd) nextRound(ctx context.Context, last round) (next round, mine bool, err error) {
	if !e.member.shared() {
		rev, err := e.Revision(ctx)
		return round{count: last.count + 1, rev: rev, own: last.own}, true, err
	}
	ctx, end, err := e.begin(ctx, "compact", compactKey)
	if err != nil {
		return round{}, false, err
	}
	defer end()
	key := []byte(compactKey)
	resp, err := e.member.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_Version{Version: last.count},
		}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: key, Value: strconv.AppendInt(nil, last.rev, 10)},
		}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: key},
		}}},
	}, true)
	if err != nil {
		return round{}, false, fail("compact", compactKey, err)
	}
	rev := resp.Header.Revision
	if resp.Succeeded {
		return round{count: last.count + 1, rev: rev, own: last.own}, true, nil
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return round{rev: rev, own: last.own}, false, nil
	}
	return round{count: kvs[0].Version, rev: rev, own: last.own}, false, nil
}

package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"proa.dev/kv"
)

// compactKey is the key by which the servers of one etcd agree on who compacts. Its name, and that its version counts
// the rounds, are the same as for kube-apiserver.
const compactKey = "compact_rev_key"

// Compact removes the history before rev. Compacting a revision that is compacted already is no error.
func (e *Etcd) Compact(ctx context.Context, rev int64) error {
	ctx, end, err := e.begin(ctx, "compact", "")
	if err != nil {
		return err
	}
	defer end()
	err = wrapError("compact", "", e.member.compact(ctx, rev))
	if errors.Is(err, kv.ErrCompacted) {
		return nil
	}
	return err
}

// RunCompaction compacts history that is older than one to two intervals, or than one to two times HistoryBytes, until ctx
// ends. It may run in every server of one etcd; each round is done by one of them. What a failed round has not compacted is
// left to the next.
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
		case <-e.compactSoon:
			r = e.compactRound(ctx, r)
		}
	}
}

// round is the state of a server after a round of compaction: the number of rounds so far, the revision of the store at
// that time, and the revision of this server's last write of compactKey.
type round struct{ count, rev, own int64 }

// compactRound compacts up to the revision of the last round, unless another server has done so since.
func (e *Etcd) compactRound(ctx context.Context, last round) round {
	next, mine, err := e.nextRound(ctx, last)
	if err != nil {
		return last
	}
	// If nothing but our own write of compactKey has happened since, there is nothing to compact: an idle store is left
	// alone.
	if !mine || last.rev == 0 || next.rev == last.own {
		return next
	}
	done, err := e.compactThrough(ctx, last.rev, next)
	if err != nil {
		e.log.WarnContext(ctx, "history is not compacted", "rev", last.rev, "err", err)
		return round{next.count, last.rev, last.own}
	}
	return done
}

// compactThrough compacts everything up to and including the revision of the last round, so that old revisions cannot
// be read for ever from an idle store. The store cannot compact its current revision, so if nothing was written since,
// forget writes compactKey first.
func (e *Etcd) compactThrough(ctx context.Context, rev int64, next round) (round, error) {
	if next.rev == rev {
		now, err := e.writeCompactKey(ctx, rev)
		if errors.Is(err, kv.ErrFull) {
			return next, e.Compact(ctx, rev) // a full store needs the compaction all the more
		}
		if err != nil {
			return next, err
		}
		next.rev, next.own = now, now
	}
	return next, e.Compact(ctx, rev+1)
}

func (e *Etcd) writeCompactKey(ctx context.Context, rev int64) (int64, error) {
	p, _, err := e.Get(ctx, compactKey)
	if err != nil {
		return 0, err
	}
	return e.Commit(ctx, kv.Write{Key: compactKey, Value: strconv.AppendInt(nil, rev, 10), Rev: p.Rev})
}

// nextRound starts a round and reports whether this server has to compact. With an embedded member there is only one
// server, so the key is not needed.
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
		return round{}, false, wrapError("compact", compactKey, err)
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

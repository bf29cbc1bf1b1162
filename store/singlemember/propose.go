package singlemember

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"proa.dev/store/singlemember/memberlog"
)

const (
	// maxQueued bounds the number of queued changes, as etcd bounds the entries that are not applied.
	maxQueued = 5000
	// reopenInterval is the interval in which a log that could not be written is reopened.
	reopenInterval = time.Second
)

// writeTurn is the right to write to the log. A goroutine with a proposal takes it if it is free, or else queues the
// proposal. A queued proposal is either written in one batch by the goroutine that has the turn, or the turn is passed
// on to its own goroutine.
type writeTurn struct {
	mu    sync.Mutex
	taken bool
	queue []*proposal
	// broken is why no changes are accepted, or nil.
	broken error
	// mustRestart reports that the database can no longer be trusted, so that the member has to be restarted.
	mustRestart bool
	// lastAttempt is when the log was last reopened, or failed.
	lastAttempt time.Time
}

// proposal is a change that is not done yet.
type proposal struct {
	// request is nil for a proposal that only waits for those before it.
	request *pb.InternalRaftRequest
	entry   *raftpb.Entry
	result  *apply.Result
	err     error
	// done receives true when the turn is passed on to the proposal, and false when the proposal is done. It is nil if
	// it was never queued.
	done chan bool
}

// propose writes a change to the log and applies it to the database. If it fails because ctx has ended, the change may
// or may not be made.
func (m *Member) propose(ctx context.Context, r *pb.InternalRaftRequest) (*apply.Result, error) {
	p, err := m.newProposal(r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.writeTurn.takeToReopen() {
		m.reopenLog()
	}
	lead, err := m.writeTurn.take(p)
	if err != nil {
		return nil, err
	}
	if !lead {
		if lead, err = m.writeTurn.wait(ctx, p, m.cfg.WriteTimeout); err != nil {
			return nil, err
		}
	}
	if lead {
		m.writeAndApply(p)
	}
	return p.result, p.err
}

func (m *Member) newProposal(r *pb.InternalRaftRequest) (*proposal, error) {
	if r == nil {
		return &proposal{}, nil
	}
	r.Header = &pb.RequestHeader{ID: m.nextID()}
	data, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(data) > m.cfg.MaxRequest {
		return nil, etcderrors.ErrRequestTooLarge
	}
	return &proposal{request: r, entry: &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: data}}, nil
}

// take takes the turn for p, or queues p.
func (t *writeTurn) take(p *proposal) (lead bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.broken != nil:
		return false, t.broken
	case !t.taken:
		t.taken = true
		return true, nil
	case len(t.queue) >= maxQueued:
		return false, etcderrors.ErrTooManyRequests
	}
	p.done = make(chan bool, 1)
	t.queue = append(t.queue, p)
	return false, nil
}

// wait waits until p is done or has the turn.
func (t *writeTurn) wait(ctx context.Context, p *proposal, patience time.Duration) (lead bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case lead = <-p.done:
		return lead, nil
	case <-timer.C:
		err = etcderrors.ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, p); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
		return false, err
	}
	select {
	case lead = <-p.done:
		// If the turn was passed on, it must be used.
		return lead, nil
	default:
		return false, err
	}
}

// gather returns the next batch: the proposal of the goroutine that has the turn, and queued ones.
func (t *writeTurn) gather(first *proposal) []*proposal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return []*proposal{first}
	}
	n, bytes := 0, 0
	for n < len(t.queue) && bytes < memberlog.MaxBatch {
		bytes += len(t.queue[n].entry.GetData())
		n++
	}
	batch := append(make([]*proposal, 0, 1+n), first)
	batch = append(batch, t.queue[:n]...)
	t.queue = slices.Delete(t.queue, 0, n)
	return batch
}

// passOn passes the turn to the next queued proposal, or frees it. If the member is broken, all queued proposals fail.
func (t *writeTurn) passOn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		for _, p := range t.queue {
			p.finish(nil, t.broken)
		}
		t.queue, t.taken = nil, false
		return
	}
	if t.taken = len(t.queue) > 0; t.taken {
		next := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		next.done <- true
	}
}

// setBroken makes the member refuse every change: until the log is reopened, or for ever if lost is set or the error
// cannot be mended.
func (m *Member) setBroken(why error, lost bool) error {
	lost = lost || !memberlog.CanReopen(why)
	err := m.writeTurn.setBroken(why, lost)
	if lost && m.cfg.OnFatal != nil {
		m.cfg.OnFatal(err)
	}
	return err
}

func (t *writeTurn) setBroken(why error, lost bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil || lost && !t.mustRestart {
		t.broken, t.lastAttempt = fmt.Errorf("%w: %w", ErrBroken, why), time.Now()
	}
	t.mustRestart = t.mustRestart || lost
	return t.broken
}

// takeToReopen takes the turn to reopen a broken log, if that is due.
func (t *writeTurn) takeToReopen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil || t.mustRestart || t.taken || time.Since(t.lastAttempt) < reopenInterval {
		return false
	}
	t.taken = true
	return true
}

// reopened frees the turn after an attempt to reopen the log.
func (t *writeTurn) reopened(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken, t.lastAttempt = false, time.Now()
	if err == nil && !t.mustRestart {
		t.broken = nil
	}
}

// brokenBecause returns why the member is broken; nil if it is not.
func (t *writeTurn) brokenBecause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// finish sets the result of a proposal and wakes its goroutine, if it was queued.
func (p *proposal) finish(r *apply.Result, err error) {
	p.result, p.err = r, err
	if p.done != nil {
		select {
		case p.done <- false:
		default:
		}
	}
}

// writeAndApply writes and applies p and queued proposals. The next goroutine may write to the log while the changes
// are applied.
func (m *Member) writeAndApply(p *proposal) {
	batch := m.writeTurn.gather(p)
	err := m.writeTurn.brokenBecause()
	if err == nil {
		err = m.write(batch)
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	if err != nil {
		err = m.setBroken(err, false)
	} else {
		// An earlier batch may have failed meanwhile.
		err = m.writeTurn.brokenBecause()
	}
	m.writeTurn.passOn()
	for i, p := range batch {
		if err == nil {
			err = m.applyProposal(p)
		}
		if err != nil {
			for _, p := range batch[i:] {
				p.finish(nil, err)
			}
			return
		}
	}
	if err := m.snapshotIfDue(); err != nil {
		m.cfg.Log.Error("the log could not be truncated", zap.Error(m.setBroken(err, false)))
	}
}

// write writes a batch to the log. A panic of etcd's log becomes an error.
func (m *Member) write(batch []*proposal) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write the log: %v", r)
		}
	}()
	entries := make([]*raftpb.Entry, 0, len(batch))
	for _, p := range batch {
		if p.entry != nil {
			entries = append(entries, p.entry)
		}
	}
	return m.log.Append(entries)
}

// applyProposal applies one change and finishes its proposal.
func (m *Member) applyProposal(p *proposal) error {
	if p.entry == nil {
		p.finish(nil, nil)
		return nil
	}
	r, err := m.apply(p.entry, p.request, true)
	if err != nil {
		return m.setBroken(err, true)
	}
	p.finish(r, nil)
	return nil
}

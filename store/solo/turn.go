package solo

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
)

const (
	// maxWaiting bounds the changes that wait for their turn, as etcd bounds what it has not applied.
	maxWaiting = 5000
	// maxBatch bounds the bytes that one turn writes, but for its first change.
	maxBatch = 4 << 20
	// mendEvery is how often a log that could not be written is tried again.
	mendEvery = time.Second
)

// turn is the right to write to the log. Whoever finds it free takes it. Whoever does not waits in the queue: until the one
// who has it writes both changes at once, or until it is passed on.
type turn struct {
	mu    sync.Mutex
	taken bool
	queue []*proposal
	// broken is why no change is taken, or nil.
	broken error
	// lost says that the database can no longer be trusted: only a new start helps.
	lost bool
	// tried is when the log was last tried again.
	tried time.Time
}

// proposal is a change on its way.
type proposal struct {
	// request is nil for who only waits until those before it have their answers.
	request *pb.InternalRaftRequest
	entry   *raftpb.Entry
	result  *apply.Result
	err     error
	// news is true when the turn is passed on to the proposal, and false when it is done. It is nil when it never waited.
	news chan bool
}

// propose brings a change into the log and the database. When it fails because ctx has ended, the change may be made or
// not.
func (m *Member) propose(ctx context.Context, r *pb.InternalRaftRequest) (*apply.Result, error) {
	p, err := m.newProposal(r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.turn.mayMend() {
		m.mend()
	}
	lead, err := m.turn.take(p)
	if err != nil {
		return nil, err
	}
	if !lead {
		if lead, err = m.turn.wait(ctx, p, m.cfg.Patience); err != nil {
			return nil, err
		}
	}
	if lead {
		m.lead(p)
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

// take takes the turn for p, or puts p into the queue.
func (t *turn) take(p *proposal) (lead bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.broken != nil:
		return false, t.broken
	case !t.taken:
		t.taken = true
		return true, nil
	case len(t.queue) >= maxWaiting:
		return false, etcderrors.ErrTooManyRequests
	}
	p.news = make(chan bool, 1)
	t.queue = append(t.queue, p)
	return false, nil
}

// wait waits until p is done or has the turn.
func (t *turn) wait(ctx context.Context, p *proposal, patience time.Duration) (lead bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case lead = <-p.news:
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
	case lead = <-p.news:
		// A turn that was passed on has to be used.
		return lead, nil
	default:
		return false, err
	}
}

// gather returns what the one who has the turn writes: its own change and those that wait.
func (t *turn) gather(first *proposal) []*proposal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return []*proposal{first}
	}
	n, bytes := 0, 0
	for n < len(t.queue) && bytes < maxBatch {
		bytes += len(t.queue[n].entry.GetData())
		n++
	}
	batch := append(make([]*proposal, 0, 1+n), first)
	batch = append(batch, t.queue[:n]...)
	t.queue = slices.Delete(t.queue, 0, n)
	return batch
}

// passOn gives the turn to the next, or back. When the member is broken nobody gets it, and those who wait are told.
func (t *turn) passOn() {
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
		next.news <- true
	}
}

// breaks makes the member refuse every change, until it is mended or, when it is lost or cannot be mended, for good.
func (m *Member) breaks(why error, lost bool) error {
	lost = lost || !isMendable(why)
	err := m.turn.breaks(why, lost)
	if lost && m.cfg.Lost != nil {
		m.cfg.Lost(err)
	}
	return err
}

func (t *turn) breaks(why error, lost bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil || lost && !t.lost {
		t.broken, t.tried = fmt.Errorf("%w: %w", ErrBroken, why), time.Now()
	}
	t.lost = t.lost || lost
	return t.broken
}

// mayMend takes the turn to try a broken log again, when it is time to.
func (t *turn) mayMend() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil || t.lost || t.taken || time.Since(t.tried) < mendEvery {
		return false
	}
	t.taken = true
	return true
}

// mended ends what mayMend began. The next try is a while away if it has failed.
func (t *turn) mended(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken, t.tried = false, time.Now()
	if err == nil && !t.lost {
		t.broken = nil
	}
}

// is returns why the member is broken, or nil.
func (t *turn) is() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// finish ends a proposal and wakes its goroutine, unless that is the one that leads.
func (p *proposal) finish(r *apply.Result, err error) {
	p.result, p.err = r, err
	if p.news != nil {
		select {
		case p.news <- false:
		default:
		}
	}
}

// lead writes and applies the change of p and of those that wait. The next may write while the changes are applied.
func (m *Member) lead(p *proposal) {
	batch := m.turn.gather(p)
	err := m.turn.is()
	if err == nil {
		err = m.write(batch)
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	if err != nil {
		err = m.breaks(err, false)
	} else {
		// Those before may have failed meanwhile.
		err = m.turn.is()
	}
	m.turn.passOn()
	for i, p := range batch {
		if err == nil {
			err = m.answer(p)
		}
		if err != nil {
			for _, p := range batch[i:] {
				p.finish(nil, err)
			}
			return
		}
	}
	if err := m.snapshotIfDue(); err != nil {
		m.cfg.Log.Error("the log does not begin anew", zap.Error(m.breaks(err, false)))
	}
}

// write brings a batch into the log. etcd's log panics where it finds itself in disorder.
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
	return m.log.append(entries)
}

// answer applies one change and ends its proposal.
func (m *Member) answer(p *proposal) error {
	if p.entry == nil {
		p.finish(nil, nil)
		return nil
	}
	r, err := m.apply(p.entry, p.request, true)
	if err != nil {
		return m.breaks(err, true)
	}
	p.finish(r, nil)
	return nil
}

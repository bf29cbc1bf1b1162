package solo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

const (
	// measureEvery is how often it is looked at whether the database can be written anew.
	measureEvery = time.Second
	// relieveEvery is how often room is made while the disk is nearly full. Where it takes long, in a large database, it is done less
	// often, but after relieveAtLatest.
	relieveEvery    = time.Second
	relieveAtLatest = 30 * time.Second
	// readersEnd is time for the database to let go of what readers of the commit before have seen, which it does in the background.
	readersEnd = 5 * time.Millisecond
	// logWorthReleasing is how many bytes the log must have to begin anew while the disk is nearly full.
	logWorthReleasing = 1 << 20
)

// relieve makes room while the disk is nearly full, and waits while it is not. So that what is deleted makes room in seconds, the
// history of changes is then kept for a second or two only.
func (m *Member) relieve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.pressed:
		}
		s := m.space(m.disk.available())
		if s.free >= s.reserve {
			continue // there has been some room since
		}
		m.cfg.Log.Warn("the disk is nearly full; what needs room may be refused", zap.Int64("free", s.free), zap.Int64("kept", s.reserve))
		var r relief
		for s.free < s.reserve+s.reserve/8 {
			begin := time.Now()
			r = m.makeRoom(ctx, r)
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(relieveEvery, min(10*time.Since(begin), relieveAtLatest))):
			}
			s = m.space(m.disk.available())
		}
		m.cfg.Log.Warn("the disk has room again", zap.Int64("free", s.free))
	}
}

// relief is what one round of making room leaves to the next.
type relief struct {
	// rev is the revision of that round: the next one forgets what was before.
	rev int64
	// unused are the bytes of the database that were not in use after it.
	unused int64
	// again is in how many more rounds it is looked at how many these are, although nothing changes: pages that a reader may still see are
	// free only when it has ended.
	again int
}

// lookAgain is how many rounds after a compaction its pages are looked for.
const lookAgain = 10

// makeRoom releases the log, forgets history, and writes the database anew where that gives something back.
func (m *Member) makeRoom(ctx context.Context, last relief) relief {
	next := relief{rev: m.kv.Rev(), unused: last.unused, again: max(0, last.again-1)}
	m.releaseLog()
	_, promised := m.disk.available()
	forget := last.rev > m.kv.FirstRev()
	if !forget && next.rev == last.rev && promised == 0 && last.again == 0 {
		return next
	}
	size, unused := m.unused()
	switch {
	case last.again > 0 && next.rev == last.rev && promised == 0:
		m.disk.freed(max(0, unused-last.unused), unused)
	case last.rev == 0 && unused >= size/4:
		// Much was deleted before the disk was nearly full.
		m.disk.freed(unused/2, unused)
	}
	next.unused = unused
	if forget {
		if err := m.compactNow(ctx, last.rev); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
			if ctx.Err() == nil {
				m.cfg.Log.Warn("history is not compacted although the disk is nearly full", zap.Error(err))
			}
			return next
		}
		_, next.unused = m.unused()
		next.again = lookAgain
		m.disk.freed(max(0, next.unused-unused), next.unused)
	}
	least := space{reserve: int64(m.cfg.Reserve)}.lowest() // less is not worth it, and is used again
	if m.shrink(func(size, used int64) bool { return size-used >= max(size/4, least) }) {
		m.disk.freed(0, 0)
		next.unused, next.again = 0, 0
	}
	return next
}

// settle lets changes take the room that they were promised, if that is much, and releases the log: then it is known what is left. It
// says whether that may be more than before.
func (m *Member) settle() bool {
	if _, promised := m.disk.available(); promised < lookAfter {
		return false
	}
	m.settling.Lock()
	defer m.settling.Unlock()
	if _, promised := m.disk.available(); promised >= lookAfter { // nobody has done it meanwhile
		m.releaseLog()
		m.measure()
	}
	return true
}

// unused returns the size of the database, and how many bytes of it are not in use.
func (m *Member) unused() (size, unused int64) {
	m.measure()
	time.Sleep(readersEnd)
	return m.measure()
}

// measure is unused as the last commit knows it.
func (m *Member) measure() (size, unused int64) {
	m.applying.Lock()
	defer m.applying.Unlock()
	used := m.used()
	size = m.backend.Size()
	return size, size - used
}

// releaseLog lets the log begin anew, and removes what it no longer needs, if that gives something back. For its snapshot there has to
// be some room.
func (m *Member) releaseLog() {
	m.applying.Lock()
	defer m.applying.Unlock()
	free, _ := m.disk.available()
	if m.log == nil || m.turn.is() != nil || m.log.size.Load() < logWorthReleasing || free < (space{reserve: int64(m.cfg.Reserve)}).lowest()/2 {
		return
	}
	if err := m.snapshot(); err != nil {
		m.cfg.Log.Error("the log does not begin anew", zap.Error(m.breaks(err, false)))
	}
}

// compactNow forgets what was before a revision, and returns when its room can be used.
func (m *Member) compactNow(ctx context.Context, rev int64) error {
	r, err := m.propose(ctx, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}})
	if _, err = as[*pb.CompactionResponse](r, err); err != nil {
		return err
	}
	return waitFor(ctx, r)
}

// waitFor waits until what a change does in the background is done.
func waitFor(ctx context.Context, r *apply.Result) error {
	if r.Physc == nil {
		return nil
	}
	select {
	case <-r.Physc:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shrinksBelowQuota says that a fifth of what the database may hold can be won.
func (m *Member) shrinksBelowQuota(_, used int64) bool { return used <= m.cfg.Quota/5*4 }

// neededToShrink returns the bytes that the disk must have left so that a database can be written anew of which so many are in use. The
// reserve may be used for it, but for the part that nobody takes.
func (m *Member) neededToShrink(used int64) int64 {
	return used + used/8 + space{reserve: int64(m.cfg.Reserve)}.lowest()
}

// shrink writes the database anew without the places that nothing uses any more, when that is worth it and the disk has room for both.
// The size of its file is what counts against the quota. Changes wait meanwhile.
func (m *Member) shrink(worth func(size, used int64) bool) bool {
	if !m.shrinking.TryLock() {
		return false
	}
	defer m.shrinking.Unlock()
	if time.Since(m.measured) < measureEvery {
		return false
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	used := m.used()
	m.measured = time.Now()
	if !worth(m.backend.Size(), used) {
		return false
	}
	free, _ := m.disk.available()
	if needed := m.neededToShrink(used); free < needed {
		if !m.shrinkWarned {
			m.cfg.Log.Warn("the database uses again what was deleted, but the disk is too full to write it anew",
				zap.Int64("unused", m.backend.Size()-used), zap.Int64("free", free), zap.Int64("needed", needed))
		}
		m.shrinkWarned = true
		return false
	}
	if err := m.backend.Defrag(); err != nil {
		m.cfg.Log.Warn("the database cannot be written anew", zap.Error(err))
		return false
	}
	m.shrinkWarned = false
	return true
}

// used is how many bytes of the database are in use. It knows that of the last change that went into its file, so there has to be one;
// and what that has freed can be used after the next.
func (m *Member) used() int64 {
	for range 2 {
		tx := m.backend.BatchTx()
		tx.LockOutsideApply()
		m.index.UnsafeSave(tx)
		tx.Unlock()
		m.backend.ForceCommit()
	}
	return m.backend.SizeInUse()
}

// tidyUp removes what a shrink has left that was interrupted.
func (m *Member) tidyUp() error {
	left, err := filepath.Glob(datadir.ToBackendFileName(m.cfg.Dir) + ".tmp.*")
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

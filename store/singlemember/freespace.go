package singlemember

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

	"proa.dev/store/singlemember/diskspace"
)

const (
	// defragmentCheckInterval is the minimum interval between checks whether defragmenting the database is worthwhile.
	defragmentCheckInterval = time.Second
	// freeSpaceInterval is the interval in which space is freed while the disk is nearly full. If that takes long,
	// because the database is large, the interval grows up to maxFreeSpaceInterval.
	freeSpaceInterval    = time.Second
	maxFreeSpaceInterval = 30 * time.Second
	// readTransactionDelay is the time that the database needs to release the pages of past read transactions, which
	// happens in the background.
	readTransactionDelay = 5 * time.Millisecond
	// minLogToTruncate is the minimum size of the log for a snapshot that frees space.
	minLogToTruncate = 1 << 20
)

// freeSpaceWhenLow frees disk space while the disk is nearly full. The history is then compacted every second or two,
// so that deleted objects free space within seconds.
func (m *Member) freeSpaceWhenLow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.spaceLow:
		}
		s := m.space(m.disk.Available())
		if s.Free >= s.Reserve {
			continue // there is enough space again
		}
		m.cfg.Log.Warn("the disk is nearly full; changes may be refused", zap.Int64("free", s.Free), zap.Int64("kept", s.Reserve))
		var r freeSpaceState
		for s.Free < s.Reserve+s.Reserve/8 {
			begin := time.Now()
			r = m.freeSpace(ctx, r)
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(freeSpaceInterval, min(10*time.Since(begin), maxFreeSpaceInterval))):
			}
			s = m.space(m.disk.Available())
		}
		m.cfg.Log.Warn("the disk has room again", zap.Int64("free", s.Free))
	}
}

// freeSpaceState is the state that one round of freeing space leaves to the next.
type freeSpaceState struct {
	// rev is the revision of the round: the next round compacts up to it.
	rev int64
	// unused is the number of unused bytes in the database file after the round.
	unused int64
	// roundsLeft is the number of further rounds that measure the unused bytes although nothing has changed: pages are
	// freed only when the read transactions that may see them have ended.
	roundsLeft int
}

// measureRounds is the number of rounds after a compaction that measure the unused bytes.
const measureRounds = 10

// freeSpace truncates the log, compacts the history, and defragments the database if that frees space.
func (m *Member) freeSpace(ctx context.Context, last freeSpaceState) freeSpaceState {
	next := freeSpaceState{rev: m.kv.Rev(), unused: last.unused, roundsLeft: max(0, last.roundsLeft-1)}
	m.truncateLog()
	_, promised := m.disk.Available()
	forget := last.rev > m.kv.FirstRev()
	if !forget && next.rev == last.rev && promised == 0 && last.roundsLeft == 0 {
		return next
	}
	size, unused := m.measureUnused()
	switch {
	case last.roundsLeft > 0 && next.rev == last.rev && promised == 0:
		m.disk.AddReusable(max(0, unused-last.unused), unused)
	case last.rev == 0 && unused >= size/4:
		// The database has many unused pages from before the disk was nearly full.
		m.disk.AddReusable(unused/2, unused)
	}
	next.unused = unused
	if forget {
		if err := m.compactNow(ctx, last.rev); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
			if ctx.Err() == nil {
				m.cfg.Log.Warn("history is not compacted although the disk is nearly full", zap.Error(err))
			}
			return next
		}
		_, next.unused = m.measureUnused()
		next.roundsLeft = measureRounds
		m.disk.AddReusable(max(0, next.unused-unused), next.unused)
	}
	least := diskspace.Space{Reserve: int64(m.cfg.Reserve)}.Lowest() // less is not worthwhile; the database reuses it
	if m.defragment(func(size, used int64) bool { return size-used >= max(size/4, least) }) {
		m.disk.AddReusable(0, 0)
		next.unused, next.roundsLeft = 0, 0
	}
	return next
}

// commitPromised commits the changes that were promised space, if that is much, and truncates the log, so that the free
// space is known exactly. It reports whether there may be more than before.
func (m *Member) commitPromised() bool {
	if _, promised := m.disk.Available(); promised < diskspace.MeasureAfter {
		return false
	}
	m.committing.Lock()
	defer m.committing.Unlock()
	if _, promised := m.disk.Available(); promised >= diskspace.MeasureAfter { // no other goroutine has done it meanwhile
		m.truncateLog()
		m.commitAndMeasure()
	}
	return true
}

// measureUnused returns the size of the database file, and how many bytes of it are unused.
func (m *Member) measureUnused() (size, unused int64) {
	m.commitAndMeasure()
	time.Sleep(readTransactionDelay)
	return m.commitAndMeasure()
}

// commitAndMeasure returns the same as unused, as of the last commit.
func (m *Member) commitAndMeasure() (size, unused int64) {
	m.applying.Lock()
	defer m.applying.Unlock()
	used := m.used()
	size = m.backend.Size()
	return size, size - used
}

// truncateLog makes a snapshot and removes old segments of the log, if the log is large enough and there is space for
// the snapshot.
func (m *Member) truncateLog() {
	m.applying.Lock()
	defer m.applying.Unlock()
	free, _ := m.disk.Available()
	if m.log == nil || m.writeTurn.brokenBecause() != nil || m.log.Size.Load() < minLogToTruncate ||
		free < (diskspace.Space{Reserve: int64(m.cfg.Reserve)}).Lowest()/2 {
		return
	}
	if err := m.snapshot(); err != nil {
		m.cfg.Log.Error("the log could not be truncated", zap.Error(m.setBroken(err, false)))
	}
}

// compactNow compacts the history before a revision, and returns when its space can be reused.
func (m *Member) compactNow(ctx context.Context, rev int64) error {
	r, err := m.propose(ctx, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}})
	if _, err = responseOf[*pb.CompactionResponse](r, err); err != nil {
		return err
	}
	return waitFor(ctx, r)
}

// waitFor waits until the background work of a change is done.
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

// freesQuarterOfQuota reports whether defragmenting would free at least a quarter of the quota.
func (m *Member) freesQuarterOfQuota(_, used int64) bool { return used <= m.cfg.Quota/4*3 }

// freesFifthOfQuota reports whether defragmenting would free at least a fifth of the quota.
func (m *Member) freesFifthOfQuota(_, used int64) bool { return used <= m.cfg.Quota/5*4 }

// neededToDefragment returns the free disk space that is needed to defragment a database with so many bytes in use. The
// reserve may be used for it, except for the part that is never used.
func (m *Member) neededToDefragment(used int64) int64 {
	return used + used/8 + diskspace.Space{Reserve: int64(m.cfg.Reserve)}.Lowest()
}

// defragment defragments the database, if that is worth it and there is enough disk space. Unused pages count against
// the quota until then. Changes wait meanwhile.
func (m *Member) defragment(worth func(size, used int64) bool) bool {
	if !m.defragmenting.TryLock() {
		return false
	}
	defer m.defragmenting.Unlock()
	if time.Since(m.lastDefragmentCheck) < defragmentCheckInterval {
		return false
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	used := m.used()
	m.lastDefragmentCheck = time.Now()
	if !worth(m.backend.Size(), used) {
		return false
	}
	free, _ := m.disk.Available()
	if needed := m.neededToDefragment(used); free < needed {
		if !m.defragmentWarned {
			m.cfg.Log.Warn("the disk is too full to defragment the database; its unused pages are reused",
				zap.Int64("unused", m.backend.Size()-used), zap.Int64("free", free), zap.Int64("needed", needed))
		}
		m.defragmentWarned = true
		return false
	}
	if err := m.backend.Defrag(); err != nil {
		m.cfg.Log.Warn("the database could not be defragmented", zap.Error(err))
		return false
	}
	m.defragmentWarned = false
	return true
}

// used returns how many bytes of the database file are in use. The database knows that as of its last commit, and pages
// that a commit has freed become unused with the next, so it commits twice.
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

// removeTemporaryFiles removes the temporary files of an interrupted defragmentation.
func (m *Member) removeTemporaryFiles() error {
	left, err := filepath.Glob(datadir.ToBackendFileName(m.cfg.Dir) + ".tmp.*")
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

package solo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// keepSnapshots is how many files of snapshots are kept, as etcd keeps them. They are small. Of the log only the files are kept that a
// start needs: there is no other member who could ask for older entries.
const keepSnapshots = 5

// journal is etcd's log, with where in it the member is. Its Save is append's business.
type journal struct {
	storage.Storage
	dir string
	// node and cluster are whose log it is.
	node, cluster types.ID
	// term is that of the entries that are appended.
	term uint64
	// last is the index of the last entry, begin that of the snapshot before the first.
	last, begin uint64
	// acknowledged is the index of the last entry that was synced, committed the last that the log says is committed. Both are for who has
	// the turn.
	acknowledged, committed uint64
	// failed says that a write has failed: what the log ends with is not known.
	failed atomic.Bool
	marker *marker
	// inFile is how many bytes the newest file of the log has at most.
	inFile atomic.Int64
	// size is about how many bytes the entries after begin take. It is changed by who has the turn and by who may apply.
	size  atomic.Int64
	ahead ahead
}

// past is what a log has to say to a member that starts.
type past struct {
	entries []*raftpb.Entry
	state   *raftpb.HardState
}

// newJournal makes the log of a member.
func newJournal(dir string, node, cluster types.ID, log *zap.Logger) (*journal, error) {
	whose, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(node)), ClusterID: new(uint64(cluster))})
	if err != nil {
		return nil, err
	}
	w, err := wal.Create(log, datadir.ToWALDir(dir), whose)
	if err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	j := &journal{Storage: storage.NewStorage(log, w, snap.New(log, datadir.ToSnapDir(dir))), dir: dir, node: node, cluster: cluster, ahead: ahead{dir: datadir.ToWALDir(dir)}}
	if j.marker, err = openMarker(dir, mark{node: node, cluster: cluster}); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// openJournal reads what a log that was inspected has after its last snapshot, and opens it for writing. The database has the entries up to
// applied. A write that was never finished is removed, and damage refused.
func openJournal(dir string, in *inspection, applied uint64, log *zap.Logger) (*journal, past, error) {
	if err := in.check(applied); err != nil {
		return nil, past{}, err
	}
	removed, err := in.settle(applied)
	if err != nil {
		return nil, past{}, fmt.Errorf("remove an unfinished write from the log: %w", err)
	}
	if removed > 0 {
		log.Info("removed a write from the end of the log that was never finished, nor acknowledged", zap.Int64("bytes", removed))
	}
	if in.unreadMark != nil {
		log.Warn("it is not known up to where writes were acknowledged; it is noted anew", zap.Error(in.unreadMark))
	}
	begin := &walpb.Snapshot{Index: new(in.begin.GetIndex()), Term: new(in.begin.GetTerm())}
	w, whose, p, err := readLog(datadir.ToWALDir(dir), begin, log)
	if err != nil {
		return nil, past{}, fmt.Errorf("read the log: %w", err)
	}
	j := &journal{
		Storage: storage.NewStorage(log, w, snap.New(log, datadir.ToSnapDir(dir))), dir: dir, begin: begin.GetIndex(), last: begin.GetIndex(),
		ahead: ahead{dir: datadir.ToWALDir(dir)},
	}
	j.term = max(p.state.GetTerm(), begin.GetTerm())
	if n := len(p.entries); n > 0 {
		j.last = p.entries[n-1].GetIndex()
		j.term = max(j.term, p.entries[n-1].GetTerm())
	}
	j.size.Store(sizeOf(p.entries))
	j.inFile.Store(in.tail().end)
	if p.born() {
		var id pb.Metadata
		if err := proto.Unmarshal(whose, &id); err != nil {
			return nil, past{}, errors.Join(fmt.Errorf("read whose the log is: %w", err), j.Close())
		}
		j.node, j.cluster = types.ID(id.GetNodeID()), types.ID(id.GetClusterID())
	}
	j.acknowledged, j.committed = j.last, j.last
	if j.marker, err = openMarker(dir, mark{node: j.node, cluster: j.cluster, file: in.tail().number}); err != nil {
		return nil, past{}, errors.Join(err, j.Close())
	}
	return j, p, nil
}

// born says that the log has had its first entry, which names the member. Before that no change can have been acknowledged.
func (p past) born() bool { return len(p.entries) > 0 || p.state.GetCommit() > 0 }

// readLog opens the log for writing.
func readLog(dir string, begin *walpb.Snapshot, log *zap.Logger) (*wal.WAL, []byte, past, error) {
	w, err := wal.Open(log, dir, begin)
	if err != nil {
		return nil, nil, past{}, err
	}
	whose, state, entries, err := w.ReadAll()
	if err != nil {
		return nil, nil, past{}, errors.Join(err, w.Close())
	}
	return w, whose, past{entries, state}, nil
}

// append gives the entries their places and returns when they are on the disk. There is one voter, so what is on its disk is
// committed. The log is told so with the next entries, so that it says of none that it is committed before it was synced. The first entry is that of a
// member that joins, which is committed before there is a log.
func (j *journal) append(entries []*raftpb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		j.last++
		e.Index = new(j.last)
		if e.Term == nil {
			e.Term = new(j.term)
		}
	}
	size := sizeOf(entries)
	j.size.Add(size)
	j.inFile.Add(size + perRecord)
	j.ahead.prepare(entries)
	commit, done := max(j.acknowledged, 1), false
	defer func() {
		if !done { // etcd's log may also panic
			j.failed.Store(true)
		}
	}()
	if err := j.Save(j.state(commit), entries); err != nil {
		return j.failure(err)
	}
	j.committed = commit
	if err := j.acknowledge(); err != nil {
		return fmt.Errorf("note up to where the log is on the disk: %w", err)
	}
	done = true
	return nil
}

func (j *journal) state(commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(j.term), Vote: new(uint64(j.node)), Commit: new(commit)}
}

// acknowledge notes that the last entry is on the disk.
func (j *journal) acknowledge() error {
	if j.inFile.Load() >= wal.SegmentSizeBytes { // the log may have begun a new file
		files, err := segmentFiles(j.ahead.dir)
		if err != nil {
			return err
		}
		if n := len(files); n > 0 && files[n-1].number != j.marker.mark.file {
			j.marker.mark.file = files[n-1].number
			j.inFile.Store(atMostInNewFile)
		}
	}
	if err := j.marker.note(j.term, j.last); err != nil {
		return err
	}
	j.acknowledged = j.last
	return nil
}

// atMostInNewFile is more than a file of the log begins with.
const atMostInNewFile = 4 * perRecord

// sizeOf returns about how many bytes entries take in the log.
func sizeOf(entries []*raftpb.Entry) (n int64) {
	for _, e := range entries {
		n += int64(len(e.GetData())) + perRecord
	}
	return n
}

// restart notes that everything up to a snapshot is in the database, so that a start reads only what came after.
func (j *journal) restart(s *raftpb.Snapshot) error {
	j.inFile.Add(2 * perRecord)
	j.ahead.mu.Lock()
	// A snapshot counts from when the log says that what it has is committed.
	err := j.Save(j.state(s.Metadata.GetIndex()), nil)
	if err == nil {
		err = j.SaveSnap(s)
	}
	j.ahead.mu.Unlock()
	if err != nil {
		j.failed.Store(true)
		return j.failure(err)
	}
	j.begin = s.Metadata.GetIndex()
	j.size.Store(0)
	return j.Release(s)
}

// Close closes the log. It says at its end that everything in it is committed, as etcd's tools expect it.
func (j *journal) Close() error {
	var err error
	if !j.failed.Load() && j.committed < j.acknowledged {
		err = j.failure(j.Save(j.state(j.acknowledged), nil))
	}
	return errors.Join(err, j.ahead.close(), j.marker.close(), j.failure(j.Storage.Close()))
}

// tidy removes what a restart has made superfluous.
func (j *journal) tidy() error {
	return errors.Join(purge(datadir.ToWALDir(j.dir), ".wal", 1), purge(datadir.ToSnapDir(j.dir), ".snap", keepSnapshots))
}

// purge removes the oldest files with the suffix and keeps the last ones. Files of the log that are in use are locked, and stay.
func purge(dir, suffix string, keep int) error {
	names, err := filesOf(dir, suffix)
	if err != nil {
		return err
	}
	for len(names) > keep {
		path := filepath.Join(dir, names[0])
		names = names[1:]
		if suffix == ".wal" {
			l, err := fileutil.TryLockFile(path, os.O_WRONLY, fileutil.PrivateFileMode)
			if errors.Is(err, fileutil.ErrLocked) {
				return nil
			}
			if err != nil {
				return err
			}
			defer l.Close()
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// filesOf names the files of a folder with the suffix, the oldest first.
func filesOf(dir, suffix string) ([]string, error) {
	names, err := fileutil.ReadDir(dir)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, suffix) }), err
}

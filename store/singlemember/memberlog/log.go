// Package memberlog is the write-ahead log of a single etcd member: etcd's log in etcd's format, with a record of the
// last acknowledged entry beside it. It opens and appends to the log, prewrites its segments, and distinguishes
// unfinished writes from damage.
package memberlog

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

// KeepSnapshots is the number of snapshot files that are kept, as in etcd. They are small. Of the log, only the
// segments that a start needs are kept, because there is no other member that could request older entries.
const KeepSnapshots = 5

// MaxBatch bounds the bytes of a batch of entries, apart from its first entry.
const MaxBatch = 4 << 20

// Log is etcd's write-ahead log with the position of the member in it. Entries are written by Append only.
type Log struct {
	storage.Storage
	dir string
	// Node and cluster are the IDs of the member and the cluster that the log belongs to.
	Node, Cluster types.ID
	// Term is the term of the entries that are appended.
	Term uint64
	// Last is the index of the last entry, begin the index of the last snapshot.
	Last, Begin uint64
	// acknowledged is the index of the last synced entry, committed the commit index that was written to the log. Both
	// belong to the goroutine with the write turn.
	acknowledged, committed uint64
	// writeFailed reports that a write has failed, so that the end of the log is not known.
	writeFailed      atomic.Bool
	AcknowledgedFile *acknowledgmentFile
	// newestFileBytes is an upper bound for the bytes of the newest segment.
	newestFileBytes atomic.Int64
	// Size is the approximate number of bytes of the entries after begin. It is changed by the goroutines with the
	// write turn and with the right to apply.
	Size      atomic.Int64
	prewriter prewriter
}

// Content is the content of a log after its last snapshot.
type Content struct {
	Entries []*raftpb.Entry
	state   *raftpb.HardState
}

// Create creates the log of a new member.
func Create(dir string, node, cluster types.ID, log *zap.Logger) (*Log, error) {
	whose, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(node)), ClusterID: new(uint64(cluster))})
	if err != nil {
		return nil, err
	}
	w, err := wal.Create(log, datadir.ToWALDir(dir), whose)
	if err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	j := &Log{Storage: storage.NewStorage(log, w, snap.New(log, datadir.ToSnapDir(dir))), dir: dir, Node: node, Cluster: cluster,
		prewriter: prewriter{dir: datadir.ToWALDir(dir)}}
	if j.AcknowledgedFile, err = openAcknowledgmentFile(dir, Acknowledgment{Node: node, Cluster: cluster}); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Open opens an inspected log for writing, and returns what it has after its last snapshot. The database has the
// entries up to applied. An unfinished write at the end is removed; a damaged log is an error.
func Open(dir string, in *Inspection, applied uint64, log *zap.Logger) (*Log, Content, error) {
	if err := in.Check(applied); err != nil {
		return nil, Content{}, err
	}
	removed, err := in.RemoveUnfinished(applied)
	if err != nil {
		return nil, Content{}, fmt.Errorf("remove an unfinished write from the log: %w", err)
	}
	if removed > 0 {
		log.Info("removed a write from the end of the log that was never finished, nor acknowledged", zap.Int64("bytes", removed))
	}
	if in.AcknowledgedErr != nil {
		log.Warn("it is not known up to where writes were acknowledged; it is noted anew", zap.Error(in.AcknowledgedErr))
	}
	begin := &walpb.Snapshot{Index: new(in.Begin.GetIndex()), Term: new(in.Begin.GetTerm())}
	w, whose, p, err := readLog(datadir.ToWALDir(dir), begin, log)
	if err != nil {
		return nil, Content{}, fmt.Errorf("read the log: %w", err)
	}
	j := &Log{
		Storage: storage.NewStorage(log, w, snap.New(log, datadir.ToSnapDir(dir))), dir: dir, Begin: begin.GetIndex(),
		Last:      begin.GetIndex(),
		prewriter: prewriter{dir: datadir.ToWALDir(dir)},
	}
	j.Term = max(p.state.GetTerm(), begin.GetTerm())
	if n := len(p.Entries); n > 0 {
		j.Last = p.Entries[n-1].GetIndex()
		j.Term = max(j.Term, p.Entries[n-1].GetTerm())
	}
	j.Size.Store(sizeOf(p.Entries))
	j.newestFileBytes.Store(in.Tail().End)
	if p.HasFirstEntry() {
		var id pb.Metadata
		if err := proto.Unmarshal(whose, &id); err != nil {
			return nil, Content{}, errors.Join(fmt.Errorf("read whose the log is: %w", err), j.Close())
		}
		j.Node, j.Cluster = types.ID(id.GetNodeID()), types.ID(id.GetClusterID())
	}
	j.acknowledged, j.committed = j.Last, j.Last
	if j.AcknowledgedFile, err = openAcknowledgmentFile(dir,
		Acknowledgment{Node: j.Node, Cluster: j.Cluster, File: in.Tail().Number}); err != nil {
		return nil, Content{}, errors.Join(err, j.Close())
	}
	return j, p, nil
}

// HasFirstEntry reports whether the log has its first entry, which adds the member to the cluster. Before that, no
// change can have been acknowledged.
func (p Content) HasFirstEntry() bool { return len(p.Entries) > 0 || p.state.GetCommit() > 0 }

// readLog opens the log for writing.
func readLog(dir string, begin *walpb.Snapshot, log *zap.Logger) (*wal.WAL, []byte, Content, error) {
	w, err := wal.Open(log, dir, begin)
	if err != nil {
		return nil, nil, Content{}, err
	}
	whose, state, entries, err := w.ReadAll()
	if err != nil {
		return nil, nil, Content{}, errors.Join(err, w.Close())
	}
	return w, whose, Content{entries, state}, nil
}

// Append assigns indexes to the entries, writes them to the log and returns when they are synced. There is one voter,
// so an entry is committed when it is on its disk. The commit index is written with the next entries, so that the log
// never contains it before the entry was synced. The first entry, which adds the member, is committed from the
// beginning.
func (j *Log) Append(entries []*raftpb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		j.Last++
		e.Index = new(j.Last)
		if e.Term == nil {
			e.Term = new(j.Term)
		}
	}
	size := sizeOf(entries)
	j.Size.Add(size)
	j.newestFileBytes.Add(size + perRecord)
	j.prewriter.prepare(entries)
	commit, done := max(j.acknowledged, 1), false
	defer func() {
		if !done { // also after a panic of etcd's log
			j.writeFailed.Store(true)
		}
	}()
	if err := j.Save(j.state(commit), entries); err != nil {
		return j.WrapSyncError(err)
	}
	j.committed = commit
	if err := j.acknowledge(); err != nil {
		return fmt.Errorf("note up to where the log is on the disk: %w", err)
	}
	done = true
	return nil
}

func (j *Log) state(commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(j.Term), Vote: new(uint64(j.Node)), Commit: new(commit)}
}

// acknowledge records that the last entry is synced.
func (j *Log) acknowledge() error {
	if j.newestFileBytes.Load() >= wal.SegmentSizeBytes { // etcd may have started a new segment
		files, err := Segments(j.prewriter.dir)
		if err != nil {
			return err
		}
		if n := len(files); n > 0 && files[n-1].Number != j.AcknowledgedFile.Last.File {
			j.AcknowledgedFile.Last.File = files[n-1].Number
			j.newestFileBytes.Store(maxNewFileBytes)
		}
	}
	if err := j.AcknowledgedFile.write(j.Term, j.Last); err != nil {
		return err
	}
	j.acknowledged = j.Last
	return nil
}

// maxNewFileBytes is an upper bound for the bytes at the beginning of a new segment.
const maxNewFileBytes = 4 * perRecord

// sizeOf returns the approximate number of bytes of entries in the log.
func sizeOf(entries []*raftpb.Entry) (n int64) {
	for _, e := range entries {
		n += int64(len(e.GetData())) + perRecord
	}
	return n
}

// SaveSnapshot records a snapshot, so that the next start reads only the entries after it.
func (j *Log) SaveSnapshot(s *raftpb.Snapshot) error {
	j.newestFileBytes.Add(2 * perRecord)
	j.prewriter.mu.Lock()
	// etcd uses a snapshot only if the commit index covers it.
	err := j.Save(j.state(s.Metadata.GetIndex()), nil)
	if err == nil {
		err = j.SaveSnap(s)
	}
	j.prewriter.mu.Unlock()
	if err != nil {
		j.writeFailed.Store(true)
		return j.WrapSyncError(err)
	}
	j.Begin = s.Metadata.GetIndex()
	j.Size.Store(0)
	return j.Release(s)
}

// Close closes the log. It first writes the commit index of the last entry, as etcd's tools expect it.
func (j *Log) Close() error {
	var err error
	if !j.writeFailed.Load() && j.committed < j.acknowledged {
		err = j.WrapSyncError(j.Save(j.state(j.acknowledged), nil))
	}
	return errors.Join(err, j.prewriter.close(), j.AcknowledgedFile.close(), j.WrapSyncError(j.Storage.Close()))
}

// PrewrittenFile returns the segment that is being prewritten, or nil if the file system does not support that. It is for
// tests.
func (j *Log) PrewrittenFile() *os.File {
	if j.prewriter.off {
		return nil
	}
	return j.prewriter.file
}

// RemoveOld removes segments and snapshot files that are no longer needed after restart.
func (j *Log) RemoveOld() error {
	return errors.Join(purge(datadir.ToWALDir(j.dir), ".wal", 1), purge(datadir.ToSnapDir(j.dir), ".snap", KeepSnapshots))
}

// purge removes the oldest files with a suffix, and keeps the newest ones. Segments that are in use are locked and not
// removed.
func purge(dir, suffix string, keep int) error {
	names, err := filesWithSuffix(dir, suffix)
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

// filesWithSuffix returns the names of the files of a folder with a suffix, oldest first.
func filesWithSuffix(dir, suffix string) ([]string, error) {
	names, err := fileutil.ReadDir(dir)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, suffix) }), err
}

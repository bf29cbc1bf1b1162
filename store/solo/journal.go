package solo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// keepFiles is how many files of the log and of its snapshots are kept, as etcd keeps them.
const keepFiles = 5

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
	ahead       ahead
}

// past is what a log has to say to a member that starts.
type past struct {
	entries []*raftpb.Entry
	state   *raftpb.HardState
	// whole says that nothing was cut off and the first words of the log were read.
	whole bool
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
	return &journal{Storage: storage.NewStorage(log, w, snap.New(log, datadir.ToSnapDir(dir))), dir: dir, node: node, cluster: cluster, ahead: ahead{dir: datadir.ToWALDir(dir)}}, nil
}

// openJournal reads what the log has after its last snapshot.
func openJournal(dir string, log *zap.Logger) (*journal, past, error) {
	snapshots, err := wal.ValidSnapshotEntries(log, datadir.ToWALDir(dir))
	if err != nil {
		return nil, past{}, fmt.Errorf("read the log: %w", err)
	}
	begin := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		last := snapshots[len(snapshots)-1]
		begin.Index, begin.Term = new(last.GetIndex()), new(last.GetTerm())
	}
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
	if p.born() {
		var id pb.Metadata
		if err := proto.Unmarshal(whose, &id); err != nil {
			return nil, past{}, errors.Join(fmt.Errorf("read whose the log is: %w", err), j.Close())
		}
		j.node, j.cluster = types.ID(id.GetNodeID()), types.ID(id.GetClusterID())
	}
	return j, p, nil
}

// born says that the log has had its first entry, which names the member. Before that no change can have been acknowledged.
func (p past) born() bool { return len(p.entries) > 0 || p.state.GetCommit() > 0 }

// readLog opens the log for writing. An entry that was being written when the member died has never been acknowledged, and
// is cut off.
func readLog(dir string, begin *walpb.Snapshot, log *zap.Logger) (*wal.WAL, []byte, past, error) {
	for repaired := false; ; repaired = true {
		w, err := wal.Open(log, dir, begin)
		if err != nil {
			return nil, nil, past{}, err
		}
		whose, state, entries, err := w.ReadAll()
		if err == nil {
			return w, whose, past{entries, state, len(whose) > 0 && !repaired}, nil
		}
		err = errors.Join(err, w.Close())
		if repaired || !errors.Is(err, io.ErrUnexpectedEOF) || !wal.Repair(log, dir) {
			return nil, nil, past{}, err
		}
	}
}

// append gives the entries their places and returns when they are on the disk. There is one voter, so what is on its disk is
// committed.
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
	j.ahead.prepare(entries)
	return j.Save(&raftpb.HardState{Term: new(j.term), Vote: new(uint64(j.node)), Commit: new(j.last)}, entries)
}

// restart notes that everything up to a snapshot is in the database, so that a start reads only what came after.
func (j *journal) restart(s *raftpb.Snapshot) error {
	j.ahead.mu.Lock()
	err := j.SaveSnap(s)
	j.ahead.mu.Unlock()
	if err != nil {
		return err
	}
	j.begin = s.Metadata.GetIndex()
	return j.Release(s)
}

// Close closes the log.
func (j *journal) Close() error { return errors.Join(j.ahead.close(), j.Storage.Close()) }

// tidy removes what a restart has made superfluous.
func (j *journal) tidy() error {
	return errors.Join(purge(datadir.ToWALDir(j.dir), ".wal", true), purge(datadir.ToSnapDir(j.dir), ".snap", false))
}

// purge removes the oldest files with the suffix but for the last few. Files of the log that are in use are locked.
func purge(dir, suffix string, locked bool) error {
	names, err := filesOf(dir, suffix)
	if err != nil {
		return err
	}
	for len(names) > keepFiles {
		path := filepath.Join(dir, names[0])
		names = names[1:]
		if locked {
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

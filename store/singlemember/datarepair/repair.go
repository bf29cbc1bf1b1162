package datarepair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"proa.dev/store/singlemember/memberdb"
	"proa.dev/store/singlemember/memberlog"
)

// Repair is the plan of a repair: which part of damaged data can be kept. That is the database, and the entries of the
// log that follow it without a gap.
type Repair struct {
	// Applied is the last entry that the database has, Last the last entry that is kept.
	Applied, Last uint64
	// Known is the last entry that is known to have been acknowledged.
	Known uint64
	// Dropped are entries that can be read but cannot be kept, because an entry before them is missing.
	Dropped []*raftpb.Entry
	// Copy is the folder of the damaged files after the repair.
	Copy string

	cfg  memberdb.Config
	term uint64 // of the entry Applied
	keep []*raftpb.Entry
	id   *pb.Metadata
	// withoutDatabase reports that the database is rebuilt from the log.
	withoutDatabase bool
	// exact reports that no entry after Known was acknowledged.
	exact bool
}

// ErrUnrepairable is the error of data that cannot be repaired.
var ErrUnrepairable = errors.New("the data cannot be repaired; restore a backup")

// PlanRepair returns what can be kept of the data in a folder, which no member may use. It changes nothing.
func PlanRepair(cfg memberdb.Config) (*Repair, error) {
	r := &Repair{cfg: cfg, id: &pb.Metadata{}}
	f := &Findings{}
	var err error
	if r.Applied, r.term, err = f.checkDatabase(cfg.Dir, nil); err != nil {
		return nil, err
	}
	if r.withoutDatabase = r.Applied == 0 || len(f.Damage) > 0; r.withoutDatabase {
		r.Applied, r.term = 0, 0
	}
	known, err := memberlog.ReadAcknowledged(cfg.Dir)
	if err == nil {
		r.id.NodeID, r.id.ClusterID = new(uint64(known.Node)), new(uint64(known.Cluster))
		r.Known = known.Index
		r.exact = known.Index > 0 && known.Boot != "none" && known.Boot == memberlog.BootID()
	}
	found, err := r.readAll()
	if err != nil {
		return nil, err
	}
	if r.id.GetNodeID() == 0 {
		return nil, fmt.Errorf("%w: no file of the log says whose it is", ErrUnrepairable)
	}
	r.Last = r.Applied
	for e := found[r.Last+1]; e != nil; e = found[r.Last+1] {
		r.keep = append(r.keep, e)
		r.Last++
	}
	if r.withoutDatabase && r.Last == 0 {
		return nil, fmt.Errorf("%w: the database cannot be used, and the log does not have what was written first; %s", ErrUnrepairable, strings.Join(f.Damage, "; "))
	}
	for _, index := range slices.Sorted(maps.Keys(found)) {
		if index > r.Last {
			r.Dropped = append(r.Dropped, found[index])
		}
	}
	return r, nil
}

// readAll returns every entry of the log that can be read, including those after damage.
func (r *Repair) readAll() (map[uint64]*raftpb.Entry, error) {
	files, err := memberlog.Segments(datadir.ToWALDir(r.cfg.Dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	found := map[uint64]*raftpb.Entry{}
	take := func(e *raftpb.Entry) {
		if e.GetIndex() > r.Applied {
			found[e.GetIndex()] = e
		}
	}
	for _, s := range files {
		if err := s.Read(0, take); err != nil {
			return nil, err
		}
		if len(s.Metadata) > 0 {
			_ = proto.Unmarshal(s.Metadata, r.id)
		}
		r.Known = max(r.Known, s.State.GetCommit())
		rest, err := s.Rest()
		if err != nil {
			return nil, err
		}
		for _, rec := range recordsIn(rest) {
			e := &raftpb.Entry{}
			if rec.GetType() == wal.EntryType && proto.Unmarshal(rec.Data, e) == nil {
				take(e)
			}
		}
		for _, c := range memberlog.ClaimsIn(rest, r.id.GetNodeID()) {
			r.Known = max(r.Known, c.Index)
		}
	}
	return found, nil
}

// recordsIn returns the records after damage whose checksum continues that of the record before.
func recordsIn(rest []byte) (all []*walpb.Record) {
	parse := func(at int) (*walpb.Record, int) {
		if at+memberlog.FrameSize > len(rest) {
			return nil, 0
		}
		length, padding, ok := memberlog.RecordLength(binary.LittleEndian.Uint64(rest[at:]))
		if !ok || int64(at)+memberlog.FrameSize+length > int64(len(rest)) {
			return nil, 0
		}
		rec := &walpb.Record{}
		if proto.Unmarshal(rest[at+memberlog.FrameSize:at+memberlog.FrameSize+int(length)], rec) != nil || rec.Type == nil ||
			rec.Crc == nil {
			return nil, 0
		}
		return rec, at + memberlog.FrameSize + int(length+padding)
	}
	for at := 0; at < len(rest); {
		before, next := parse(at)
		at += memberlog.FrameSize
		for before != nil {
			rec, end := parse(next)
			if rec == nil || rec.GetType() == wal.CrcType || rec.GetCrc() != memberlog.Checksum(before.GetCrc(), rec.Data) {
				break
			}
			all = append(all, rec)
			before, next, at = rec, end, end
		}
	}
	return all
}

// Do carries out the repair: it replaces the log by one that starts at the last entry of the database and continues
// with the entries that are kept, and opens the result. The damaged files are moved to the folder Copy. It returns the
// revision of the data; if changes were dropped, that is far ahead of the old revision.
func (r *Repair) Do(open func() (int64, error)) (revision int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrUnrepairable, p)
		}
	}()
	member := filepath.Dir(datadir.ToWALDir(r.cfg.Dir))
	r.Copy = filepath.Join(member, "damaged-"+time.Now().UTC().Format("20060102-150405"))
	if err := os.Mkdir(r.Copy, 0o700); err != nil {
		return 0, err
	}
	repaired := filepath.Join(r.Copy, "new")
	if err := r.writeLog(repaired); err != nil {
		return 0, fmt.Errorf("write the log anew: %w", err)
	}
	if r.withoutDatabase {
		if err := moveIfThere(datadir.ToBackendFileName(r.cfg.Dir), filepath.Join(r.Copy, "db")); err != nil {
			return 0, err
		}
	}
	if err := exchange(repaired, datadir.ToWALDir(r.cfg.Dir), filepath.Join(r.Copy, "wal")); err != nil {
		return 0, err
	}
	if err := moveIfThere(filepath.Join(member, memberlog.AcknowledgedFile),
		filepath.Join(r.Copy, memberlog.AcknowledgedFile)); err != nil {
		return 0, err
	}
	if err := errors.Join(memberlog.SyncDir(r.Copy), memberlog.SyncDir(member)); err != nil {
		return 0, err
	}
	if revision, err = open(); err != nil {
		return 0, fmt.Errorf("the repaired data cannot be opened, and the damaged files are in %s: %w", r.Copy, err)
	}
	if r.exact && r.Known <= r.Last && len(r.Dropped) == 0 {
		return revision, nil
	}
	if err := r.skipTo(revision + SkipRevisions); err != nil {
		return 0, fmt.Errorf("skip the revisions that were dropped: %w", err)
	}
	return open()
}

// SkipRevisions is the number of revisions that are skipped by a repair that drops changes or may do so: more than can
// have been dropped.
const SkipRevisions = 1_000_000_000

// skipTo lets the revisions continue after a higher one, and marks the history up to it as compacted. So no revision
// stands for two states, and clients that have seen dropped changes have to list again.
func (r *Repair) skipTo(revision int64) error {
	db := r.openDatabase()
	tx := db.BatchTx()
	tx.LockOutsideApply()
	mvcc.UnsafeSetScheduledCompact(tx, revision)
	tx.Unlock()
	db.ForceCommit()
	return db.Close()
}

// openDatabase opens the database with its meta bucket.
func (r *Repair) openDatabase() *memberdb.Database {
	db := memberdb.Open(r.cfg)
	schema.CreateMetaBucket(db.BatchTx())
	return db
}

func moveIfThere(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// exchange replaces the folder place by another one and moves the old one to backup, atomically if the file system
// supports it.
func exchange(folder, place, backup string) error {
	err := unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE)
	if err == nil {
		return os.Rename(folder, backup)
	}
	if err := moveIfThere(place, backup); err != nil {
		return err
	}
	return os.Rename(folder, place)
}

// writeLog writes a log with the entries that are kept to a folder.
func (r *Repair) writeLog(dir string) error {
	metadata, err := proto.Marshal(r.id)
	if err != nil {
		return err
	}
	w, err := wal.Create(r.cfg.Log, dir, metadata)
	if err != nil {
		return err
	}
	term := r.term
	if r.Applied > 0 {
		err = r.writeSnapshot(w)
	}
	if n := len(r.keep); n > 0 {
		term = max(term, r.keep[n-1].GetTerm())
	}
	if err == nil {
		err = w.Save(&raftpb.HardState{Term: new(term), Vote: new(r.id.GetNodeID()), Commit: new(r.Last)}, r.keep)
	}
	return errors.Join(err, w.Close())
}

// writeSnapshot records in the log, and in a snapshot file with the membership for etcd, that the database has
// everything up to an entry.
func (r *Repair) writeSnapshot(w *wal.WAL) error {
	db := r.openDatabase()
	defer db.Close()
	cluster := membership.NewCluster(r.cfg.Log)
	cluster.SetID(types.ID(r.id.GetNodeID()), types.ID(r.id.GetClusterID()))
	cluster.SetBackend(schema.NewMembershipBackend(r.cfg.Log, db))
	cluster.Recover(api.UpdateCapability)
	members := v2store.New("/0", "/1")
	cluster.Store(members)
	data, err := members.SaveNoCopy()
	if err != nil {
		return err
	}
	voters := &raftpb.ConfState{Voters: []uint64{r.id.GetNodeID()}}
	meta := &raftpb.SnapshotMetadata{Index: new(r.Applied), Term: new(r.term), ConfState: voters}
	if err := snap.New(r.cfg.Log, datadir.ToSnapDir(r.cfg.Dir)).SaveSnap(&raftpb.Snapshot{Data: data, Metadata: meta}); err != nil {
		return err
	}
	return w.SaveSnapshot(&walpb.Snapshot{Index: new(r.Applied), Term: new(r.term), ConfState: voters})
}

// Describe describes which entries are dropped, with the keys of those that can be read.
func (r *Repair) Describe() (lines []string) {
	gap := r.Last + 1
	next := r.Known + 1
	if len(r.Dropped) > 0 {
		next = r.Dropped[0].GetIndex()
	}
	switch {
	case next == gap+1:
		lines = append(lines, fmt.Sprintf("entry %d of the log, which cannot be read", gap))
	case next > gap:
		lines = append(lines, fmt.Sprintf("entries %d to %d of the log, which cannot be read", gap, next-1))
	}
	for _, e := range r.Dropped {
		if len(lines) > maxDescribed {
			lines = append(lines, fmt.Sprintf("all entries from %d to %d, likewise", e.GetIndex(), r.Dropped[len(r.Dropped)-1].GetIndex()))
			break
		}
		lines = append(lines, fmt.Sprintf("entry %d, which cannot be kept without those before it: %s", e.GetIndex(), describeEntry(e)))
	}
	return lines
}

// maxDescribed bounds the entries that Describe lists, maxKeys the keys of each.
const (
	maxDescribed = 100
	maxKeys      = 8
)

// describeEntry describes what an entry changes.
func describeEntry(e *raftpb.Entry) string {
	r := &pb.InternalRaftRequest{}
	switch {
	case e.GetType() != raftpb.EntryNormal:
		return "a change of the members"
	case len(e.GetData()) == 0:
		return "the beginning of a term"
	case proto.Unmarshal(e.GetData(), r) != nil:
		return "it cannot be decoded"
	case r.Txn == nil:
		return "a change of leases, alarms or versions, or a compaction"
	}
	text := ""
	for i, op := range r.Txn.Success {
		if i == maxKeys {
			return text + fmt.Sprintf(" and %d more keys", len(r.Txn.Success)-maxKeys)
		}
		if put := op.GetRequestPut(); put != nil {
			text += fmt.Sprintf(" put %q", put.Key)
		}
		if del := op.GetRequestDeleteRange(); del != nil {
			text += fmt.Sprintf(" delete %q", del.Key)
		}
	}
	return "a transaction:" + text
}

package memberlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxUnfinished is an upper bound for one write to the log: a batch of at most about MaxBatch bytes, and a snapshot
// record.
const maxUnfinished = 4 * MaxBatch

// ErrDamaged is the error of data that is not what was written. A write that was interrupted by a crash is no damage.
var ErrDamaged = errors.New("the data is damaged")

// Damage is an ErrDamaged with a description.
type Damage struct{ What string }

// Error returns the description, and how to check and repair the data.
func (d Damage) Error() string {
	return fmt.Sprintf(`%v: %s. Nothing was changed; "proa store check" says what is there, and "proa store repair" what can be kept`, ErrDamaged, d.What)
}

// Is reports that the error is ErrDamaged.
func (d Damage) Is(target error) bool { return target == ErrDamaged }

// Damaged returns an ErrDamaged with a description.
func Damaged(format string, args ...any) error { return Damage{fmt.Sprintf(format, args...)} }

// Inspection is the result of reading the segments of a log. Nothing is changed by it.
type Inspection struct {
	// Files are the segments that a start needs, oldest first.
	Files []*Segment
	// Begin is the last snapshot: the database has all entries up to it.
	Begin *walpb.Snapshot
	// Last and term are the index and the term of the last complete entry, or of the snapshot.
	Last, term uint64
	// id has the IDs of the member and the cluster that the log belongs to.
	id           *pb.Metadata
	Acknowledged Acknowledgment
	// AcknowledgedErr is why the acknowledgment file could not be read.
	AcknowledgedErr error
}

// Inspect reads the segments of a log, from the newest back to the one with the last snapshot. It returns nil if there
// is no log.
func Inspect(dir string) (*Inspection, error) {
	all, err := Segments(datadir.ToWALDir(dir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	in := &Inspection{id: &pb.Metadata{}}
	in.Acknowledged, in.AcknowledgedErr = ReadAcknowledged(dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	first := len(all)
	commit := uint64(0)
	for first > 0 && (in.Begin == nil || all[first].first > in.Begin.GetIndex()) {
		first--
		s := all[first]
		if err := s.Read(in.Acknowledged.Index, nil); err != nil {
			return nil, err
		}
		commit = max(commit, s.State.GetCommit())
		for _, snapshot := range slices.Backward(s.snapshots) {
			if in.Begin == nil && snapshot.GetIndex() <= commit {
				in.Begin = snapshot
			}
		}
	}
	in.Files = all[first:]
	if in.Begin == nil {
		in.Begin = &walpb.Snapshot{}
	}
	in.Last, in.term = in.Begin.GetIndex(), in.Begin.GetTerm()
	for _, s := range in.Files {
		if s.last > 0 {
			in.Last, in.term = s.last, s.lastTerm
		}
		if len(s.Metadata) > 0 {
			_ = proto.Unmarshal(s.Metadata, in.id)
		}
	}
	return in, nil
}

// Check returns why the log of a folder cannot be used. in is nil if there is no log, which is an error if there was
// one before.
func Check(dir string, in *Inspection, applied uint64) error {
	if in != nil {
		return in.Check(applied)
	}
	acknowledged, err := ReadAcknowledged(dir)
	if err != nil {
		return Damaged("the log in %s is missing, and it is not known up to where it was written: %v", datadir.ToWALDir(dir), err)
	}
	if known := max(applied, acknowledged.Index); known > 0 {
		return Damaged("the log in %s is missing, and there were writes up to its entry %d", datadir.ToWALDir(dir), known)
	}
	return nil
}

// Tail returns the newest segment.
func (in *Inspection) Tail() *Segment { return in.Files[len(in.Files)-1] }

// isExact reports whether Acknowledged is the last entry that was ever acknowledged: the machine has not been rebooted
// since it was written, and no other program has written to the log or the database.
func (in *Inspection) isExact(applied uint64) bool {
	m := in.Acknowledged
	return m.Index > 0 && m.Boot != "none" && m.Boot == BootID() && in.isOurs() && in.term <= m.Term && applied <= m.Index
}

// isOurs reports whether Acknowledged belongs to this log.
func (in *Inspection) isOurs() bool {
	return uint64(in.Acknowledged.Node) == in.id.GetNodeID() && uint64(in.Acknowledged.Cluster) == in.id.GetClusterID()
}

// Check returns why a log cannot be used. An unfinished write at the end of the last segment is no damage, because it
// was never acknowledged. applied is the last entry that the database has.
func (in *Inspection) Check(applied uint64) error {
	if err := in.checkFiles(); err != nil {
		return err
	}
	s := in.Tail()
	name := filepath.Base(s.Path)
	missing := in.Last + 1
	switch {
	case s.End == 0 || len(s.Metadata) == 0:
		return Damaged("the beginning of the log's newest file %s: %s", name, orElse(s.Problem, "it ends there"))
	case applied > in.Last:
		return Damaged("the database has entries of the log up to %d, but the log ends with entry %d in %s at byte %d%s", applied, in.Last, name, s.End, s.Reason())
	case applied < in.Begin.GetIndex():
		return Damaged("the database has entries of the log up to %d, but the log has only those after %d", applied, in.Begin.GetIndex())
	case in.isOurs() && in.Acknowledged.Index > in.Last:
		return Damaged("writes were acknowledged up to entry %d, but the log ends with entry %d in %s at byte %d%s", in.Acknowledged.Index, in.Last, name, s.End, s.Reason())
	case in.isOurs() && in.Acknowledged.File > s.Number:
		return Damaged("the log had a file after %s, with number %d, which is gone", name, in.Acknowledged.File)
	case s.RestEnd == s.End:
		return nil
	}
	rest, err := s.Rest()
	if err != nil {
		return err
	}
	claims := ClaimsIn(rest, in.id.GetNodeID())
	if slices.ContainsFunc(claims, func(c Claim) bool { return c.Index > 1 && c.Index >= missing }) {
		return Damaged("entry %d in %s at byte %d%s. It was acknowledged: records behind it say so", missing, name, s.End, s.Reason())
	}
	if in.isExact(applied) {
		return nil
	}
	if problem := whyNotUnfinished(rest, s.End, claims); problem != "" {
		return Damaged("%s at byte %d%s, and that is not how a write ends that a power cut has interrupted: %s", name, s.End, s.Reason(), problem)
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Reason describes what is wrong with the record after the last complete one.
func (s *Segment) Reason() string {
	switch {
	case s.Problem != "":
		return " (" + s.Problem + ")"
	case s.RestEnd > s.End:
		return " (it was overwritten with zeros)"
	}
	return ""
}

// checkFiles checks that the segments before the last are complete, and that each continues where the one before ends.
func (in *Inspection) checkFiles() error {
	last := uint64(0)
	for i, s := range in.Files {
		name := filepath.Base(s.Path)
		if i > 0 {
			before := in.Files[i-1]
			switch {
			case s.Number != before.Number+1:
				return Damaged("the log's file with number %d, before %s, is gone", before.Number+1, name)
			case before.Problem != "" || before.RestEnd > before.End || s.End > 0 && before.crc != s.startCRC:
				return Damaged("the log's file %s at byte %d%s", filepath.Base(before.Path), before.End, before.Reason())
			}
		}
		if s.last > 0 && last > 0 && s.from > last+1 {
			return Damaged("the log's file %s begins with entry %d, and the one before ends with %d", name, s.from, last)
		}
		if s.last > 0 {
			last = s.last
		}
		if i == 0 && s.first > in.Begin.GetIndex() {
			return Damaged("the log's file before %s, which has the entries after %d, is gone", name, in.Begin.GetIndex())
		}
	}
	return nil
}

// whyNotUnfinished returns why the bytes after the last complete record of a segment cannot be a write that was
// interrupted by a power failure, or "" if they can. Such a write leaves each sector either unchanged, which is zeros,
// or completely written. So the first incomplete record lacks a sector: the one with its length, or a later one. claims
// are the claims in these bytes: none of them can be inside of another record.
func whyNotUnfinished(rest []byte, at int64, claims []Claim) string {
	if len(rest) > maxUnfinished {
		return "more follows than is ever written at once"
	}
	first := Sector - at%Sector // how many bytes of the record are in the sector with its length
	var frame [FrameSize]byte
	copy(frame[:], rest) // zeros at the end of the log are not part of rest, also not those of a length
	length := binary.LittleEndian.Uint64(frame[:])
	if length == 0 {
		if slices.ContainsFunc(rest[:min(first, int64(len(rest)))], func(b byte) bool { return b != 0 }) {
			return "the sector with the length of the record is there, the length is not"
		}
		return ""
	}
	bytes, padding, ok := RecordLength(length)
	if !ok {
		return "the length of the record is impossible"
	}
	end := FrameSize + bytes + padding
	if slices.ContainsFunc(claims, func(c Claim) bool { return 0 < c.At && c.At < end }) {
		return "the record would go on beyond others"
	}
	for from := first; from < end; from += Sector {
		if from >= int64(len(rest)) ||
			!slices.ContainsFunc(rest[from:min(from+Sector, int64(len(rest)))], func(b byte) bool { return b != 0 }) {
			return ""
		}
	}
	return "all sectors of the record are there"
}

// Claim is a record after damage that contains up to which entry writes were acknowledged.
type Claim struct {
	At    int64
	Index uint64
}

// ClaimsIn returns the claims in the bytes after damage. Each write ends with a record that has the last entry that was
// acknowledged before it.
func ClaimsIn(rest []byte, node uint64) (all []Claim) {
	for at := 0; at+FrameSize < len(rest); at += FrameSize {
		bytes, padding, ok := RecordLength(binary.LittleEndian.Uint64(rest[at:]))
		if !ok || bytes > Sector || at+FrameSize+int(bytes+padding) > len(rest)+int(padding) {
			continue
		}
		rec := &walpb.Record{}
		if proto.Unmarshal(rest[at+FrameSize:at+FrameSize+int(bytes)], rec) != nil {
			continue
		}
		state, snapshot := &raftpb.HardState{}, &walpb.Snapshot{}
		switch rec.GetType() {
		case wal.StateType:
			if proto.Unmarshal(rec.Data, state) == nil && state.GetVote() == node {
				all = append(all, Claim{int64(at), state.GetCommit()})
			}
		case wal.SnapshotType:
			if proto.Unmarshal(rec.Data, snapshot) == nil && slices.Contains(snapshot.GetConfState().GetVoters(), node) {
				all = append(all, Claim{int64(at), snapshot.GetIndex()})
			}
		}
	}
	return all
}

// RemoveUnfinished removes an unfinished write from the end of the log, and syncs what is kept: entries that were not
// acknowledged may be only in memory after a failed sync. It returns the number of removed bytes.
func (in *Inspection) RemoveUnfinished(applied uint64) (removed int64, err error) {
	s := in.Tail()
	from := s.End
	if in.isExact(applied) && s.acknowledgedEnd < s.End {
		from = s.acknowledgedEnd
	}
	if from == s.RestEnd && s.size%FrameSize == 0 {
		return 0, nil
	}
	f, err := os.OpenFile(s.Path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	data := make([]byte, s.RestEnd-from)
	if _, err := f.ReadAt(data[:s.End-from], from); err != nil {
		return 0, err
	}
	if _, err := f.WriteAt(data, from); err != nil {
		return 0, err
	}
	if s.size%FrameSize != 0 {
		if err := f.Truncate(max(s.End, s.size&^(FrameSize-1))); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, SyncError{err}
	}
	return s.RestEnd - s.End, nil
}

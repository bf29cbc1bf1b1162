package solo

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

// maxUnfinished is more than one write of the log has: those that wait are written together up to maxBatch, and a snapshot may be written at the
// same time.
const maxUnfinished = 4 * maxBatch

// ErrDamaged is the error of data that is not what was written, other than by a write that was never finished.
var ErrDamaged = errors.New("the data is damaged")

// damage is an ErrDamaged with what was found.
type damage struct{ what string }

func (d damage) Error() string {
	return fmt.Sprintf(`%v: %s. Nothing was changed; "proa store check" says what is there, and "proa store repair" what can be kept`, ErrDamaged, d.what)
}

func (d damage) Is(target error) bool { return target == ErrDamaged }

func damaged(format string, args ...any) error { return damage{fmt.Sprintf(format, args...)} }

// inspection is what was found in the files of a log, without a change to them.
type inspection struct {
	// files are those that a start needs, the oldest first. The log has no others before them that matter.
	files []*segment
	// begin is the last snapshot: what is up to there is in the database.
	begin *walpb.Snapshot
	// last is the index of the last whole entry, or that of the snapshot. term is its term.
	last, term uint64
	// node is whose log it is.
	id   *pb.Metadata
	mark mark
	// unreadMark is why the mark is not known.
	unreadMark error
}

// inspectLog reads the files of a log from the newest back to the one that holds what comes after the last snapshot. It returns nil if there is no
// log.
func inspectLog(dir string) (*inspection, error) {
	all, err := segmentFiles(datadir.ToWALDir(dir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	in := &inspection{id: &pb.Metadata{}}
	in.mark, in.unreadMark = readMark(dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	first := len(all)
	commit := uint64(0)
	for first > 0 && (in.begin == nil || all[first].first > in.begin.GetIndex()) {
		first--
		s := all[first]
		if err := s.read(in.mark.index, nil); err != nil {
			return nil, err
		}
		commit = max(commit, s.state.GetCommit())
		for _, snapshot := range slices.Backward(s.snapshots) {
			if in.begin == nil && snapshot.GetIndex() <= commit {
				in.begin = snapshot
			}
		}
	}
	in.files = all[first:]
	if in.begin == nil {
		in.begin = &walpb.Snapshot{}
	}
	in.last, in.term = in.begin.GetIndex(), in.begin.GetTerm()
	for _, s := range in.files {
		if s.last > 0 {
			in.last, in.term = s.last, s.lastTerm
		}
		if len(s.metadata) > 0 {
			_ = proto.Unmarshal(s.metadata, in.id)
		}
	}
	return in, nil
}

// checkLog returns why the log of a folder cannot be used, or why there must be one; in is nil if there is none.
func checkLog(dir string, in *inspection, applied uint64) error {
	if in != nil {
		return in.check(applied)
	}
	acknowledged, err := readMark(dir)
	if err != nil {
		return damaged("the log in %s is missing, and it is not known up to where it was written: %v", datadir.ToWALDir(dir), err)
	}
	if known := max(applied, acknowledged.index); known > 0 {
		return damaged("the log in %s is missing, and there were writes up to its entry %d", datadir.ToWALDir(dir), known)
	}
	return nil
}

func (in *inspection) tail() *segment { return in.files[len(in.files)-1] }

// exact says that the mark names the last entry that was ever acknowledged: the machine has not been started anew since, and nobody else has
// written to the log or the database.
func (in *inspection) exact(applied uint64) bool {
	m := in.mark
	return m.index > 0 && m.boot != "none" && m.boot == thisBoot() && in.isOurs() && in.term <= m.term && applied <= m.index
}

// isOurs says that the mark belongs to this log.
func (in *inspection) isOurs() bool {
	return uint64(in.mark.node) == in.id.GetNodeID() && uint64(in.mark.cluster) == in.id.GetClusterID()
}

// check returns why a log cannot be used. The end of the last file may be a write that was never finished, and so never acknowledged. That is no
// damage; applied is the last entry that the database has.
func (in *inspection) check(applied uint64) error {
	if err := in.checkFiles(); err != nil {
		return err
	}
	s := in.tail()
	name := filepath.Base(s.path)
	missing := in.last + 1
	switch {
	case s.end == 0 || len(s.metadata) == 0:
		return damaged("the beginning of the log's newest file %s: %s", name, orElse(s.problem, "it ends there"))
	case applied > in.last:
		return damaged("the database has entries of the log up to %d, but the log ends with entry %d in %s at byte %d%s", applied, in.last, name, s.end, s.because())
	case applied < in.begin.GetIndex():
		return damaged("the database has entries of the log up to %d, but the log has only those after %d", applied, in.begin.GetIndex())
	case in.isOurs() && in.mark.index > in.last:
		return damaged("writes were acknowledged up to entry %d, but the log ends with entry %d in %s at byte %d%s", in.mark.index, in.last, name, s.end, s.because())
	case in.isOurs() && in.mark.file > s.number:
		return damaged("the log had a file after %s, with number %d, which is gone", name, in.mark.file)
	case s.restEnd == s.end:
		return nil
	}
	rest, err := s.rest()
	if err != nil {
		return err
	}
	claims := claimsIn(rest, in.id.GetNodeID())
	if slices.ContainsFunc(claims, func(c claim) bool { return c.index > 1 && c.index >= missing }) {
		return damaged("entry %d in %s at byte %d%s. It was acknowledged: records behind it say so", missing, name, s.end, s.because())
	}
	if in.exact(applied) {
		return nil
	}
	if problem := notUnfinished(rest, s.end, claims); problem != "" {
		return damaged("%s at byte %d%s, and that is not how a write ends that a power cut has interrupted: %s", name, s.end, s.because(), problem)
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// because says what is wrong with the record behind the last whole one.
func (s *segment) because() string {
	switch {
	case s.problem != "":
		return " (" + s.problem + ")"
	case s.restEnd > s.end:
		return " (it was overwritten with zeros)"
	}
	return ""
}

// checkFiles makes sure that files before the last are whole and that each goes on where the one before ends.
func (in *inspection) checkFiles() error {
	last := uint64(0)
	for i, s := range in.files {
		name := filepath.Base(s.path)
		if i > 0 {
			before := in.files[i-1]
			switch {
			case s.number != before.number+1:
				return damaged("the log's file with number %d, before %s, is gone", before.number+1, name)
			case before.problem != "" || before.restEnd > before.end || s.end > 0 && before.crc != s.startCRC:
				return damaged("the log's file %s at byte %d%s", filepath.Base(before.path), before.end, before.because())
			}
		}
		if s.last > 0 && last > 0 && s.from > last+1 {
			return damaged("the log's file %s begins with entry %d, and the one before ends with %d", name, s.from, last)
		}
		if s.last > 0 {
			last = s.last
		}
		if i == 0 && s.first > in.begin.GetIndex() {
			return damaged("the log's file before %s, which has the entries after %d, is gone", name, in.begin.GetIndex())
		}
	}
	return nil
}

// notUnfinished says why the rest of a file behind its last whole record cannot be a write that a power cut has interrupted, or "" if it can. Such a
// write leaves each sector as it was, which is zeros, or as it shall be. So the first record that is not whole lacks a sector: the one with its length, or
// a later one. claims are those in the rest: none can be inside of another record.
func notUnfinished(rest []byte, at int64, claims []claim) string {
	if len(rest) > maxUnfinished {
		return "more follows than is ever written at once"
	}
	first := min(int(sector-at%sector), len(rest))
	if len(rest) < frame || binary.LittleEndian.Uint64(rest) == 0 {
		if slices.ContainsFunc(rest[:first], func(b byte) bool { return b != 0 }) {
			return "the sector with the length of the record is there, the length is not"
		}
		return ""
	}
	bytes, padding, ok := recordLength(binary.LittleEndian.Uint64(rest))
	if !ok {
		return "the length of the record is impossible"
	}
	end := frame + bytes + padding
	if slices.ContainsFunc(claims, func(c claim) bool { return 0 < c.at && c.at < end }) {
		return "the record would go on beyond others"
	}
	for from := int64(first); from < end; from += sector {
		if from >= int64(len(rest)) || !slices.ContainsFunc(rest[from:min(from+sector, int64(len(rest)))], func(b byte) bool { return b != 0 }) {
			return ""
		}
	}
	return "all sectors of the record are there"
}

// claim is a record in the rest of a file that says up to which entry writes were acknowledged.
type claim struct {
	at    int64
	index uint64
}

// claimsIn finds the claims in the rest of a file. Each write ends with a record that names the last entry acknowledged before it.
func claimsIn(rest []byte, node uint64) (all []claim) {
	for at := 0; at+frame < len(rest); at += frame {
		bytes, padding, ok := recordLength(binary.LittleEndian.Uint64(rest[at:]))
		if !ok || bytes > sector || at+frame+int(bytes+padding) > len(rest)+int(padding) {
			continue
		}
		rec := &walpb.Record{}
		if proto.Unmarshal(rest[at+frame:at+frame+int(bytes)], rec) != nil {
			continue
		}
		state, snapshot := &raftpb.HardState{}, &walpb.Snapshot{}
		switch rec.GetType() {
		case wal.StateType:
			if proto.Unmarshal(rec.Data, state) == nil && state.GetVote() == node {
				all = append(all, claim{int64(at), state.GetCommit()})
			}
		case wal.SnapshotType:
			if proto.Unmarshal(rec.Data, snapshot) == nil && slices.Contains(snapshot.GetConfState().GetVoters(), node) {
				all = append(all, claim{int64(at), snapshot.GetIndex()})
			}
		}
	}
	return all
}

// settle removes an unfinished write from the end of the log, and makes sure that what is kept is on the disk: of entries that were not
// acknowledged, what is read may be what a failed sync has left in memory. It returns how many bytes it has removed.
func (in *inspection) settle(applied uint64) (removed int64, err error) {
	s := in.tail()
	from := s.end
	if in.exact(applied) && s.acknowledgedEnd < s.end {
		from = s.acknowledgedEnd
	}
	if from == s.restEnd && s.size%frame == 0 {
		return 0, nil
	}
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	data := make([]byte, s.restEnd-from)
	if _, err := f.ReadAt(data[:s.end-from], from); err != nil {
		return 0, err
	}
	if _, err := f.WriteAt(data, from); err != nil {
		return 0, err
	}
	if s.size%frame != 0 {
		if err := f.Truncate(max(s.end, s.size&^(frame-1))); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, syncError{err}
	}
	return s.restEnd - s.end, nil
}

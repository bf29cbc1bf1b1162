package memberlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

const (
	// Sector is the unit that a disk writes atomically.
	Sector = 512
	// FrameSize is the size of the length field before each record of the log.
	FrameSize = 8
	// maxRecord is an upper bound for the size of a record.
	maxRecord = 64 << 20
)

// Segment is one file of the log, with the content of its records up to the first incomplete one.
type Segment struct {
	Path string
	// Number is the number of the segment, first the index of its first entry; both are part of the file name.
	Number, first uint64
	size          int64
	// startCRC is the checksum of all records before this segment, according to its first record; crc includes the
	// records of this segment.
	startCRC, crc uint32
	Metadata      []byte
	State         *raftpb.HardState // the last hard state, nil if there is none
	snapshots     []*walpb.Snapshot
	// from and last are the indexes of the first and the last entry; last is 0 if there is none.
	from, last, lastTerm uint64
	// End is the offset after the last complete record, RestEnd the offset after the last byte that is not zero.
	End     int64
	RestEnd int64
	// Problem describes what is wrong with the record at End; it is empty if there is none.
	Problem string
	// acknowledgedEnd is the offset after the entry whose index was passed to read; 0 if there is no such entry.
	acknowledgedEnd int64
}

// Segments returns the segments of a log, oldest first. They are not read yet.
func Segments(dir string) ([]*Segment, error) {
	names, err := filesWithSuffix(dir, ".wal")
	if err != nil {
		return nil, err
	}
	var all []*Segment
	for _, name := range names {
		s := &Segment{Path: filepath.Join(dir, name)}
		if n, err := fmt.Sscanf(name, "%016x-%016x.wal", &s.Number, &s.first); err == nil && n == 2 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Segment) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// Read reads the segment. It calls each for every entry; each may be nil.
func (s *Segment) Read(acknowledged uint64, each func(*raftpb.Entry)) error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		rec, size, problem, err := readRecord(r, s.size-s.End, s.crc)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.Path, err)
		}
		if rec == nil && problem == "" && s.End == 0 {
			problem = "it is empty"
		}
		if problem == "" && rec != nil {
			problem = s.addRecord(rec, each)
		}
		if problem != "" || rec == nil {
			s.Problem = problem
			s.RestEnd, err = lastByte(f, s.End, s.size)
			return err
		}
		s.End += size
		if s.last == acknowledged && rec.GetType() == wal.EntryType {
			s.acknowledgedEnd = s.End
		}
	}
}

// readRecord reads a record of at most room bytes. It returns nil at the end of the file or of the written part of it.
// If the record is incomplete or damaged, problem describes that.
func readRecord(r io.Reader, room int64, crc uint32) (rec *walpb.Record, size int64, problem string, err error) {
	var head [FrameSize]byte
	n, err := io.ReadFull(r, head[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if len(bytes.TrimRight(head[:n], "\x00")) > 0 {
			return nil, 0, "the file ends in it", nil
		}
		return nil, 0, "", nil
	}
	if err != nil {
		return nil, 0, "", err
	}
	length := binary.LittleEndian.Uint64(head[:])
	if length == 0 {
		return nil, 0, "", nil
	}
	dataSize, padding, ok := RecordLength(length)
	if !ok {
		return nil, 0, "it has an impossible length", nil
	}
	if FrameSize+dataSize+padding > room {
		return nil, 0, "the file ends in it", nil
	}
	data := make([]byte, dataSize+padding)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, 0, "", err
	}
	rec = &walpb.Record{}
	if err := proto.Unmarshal(data[:dataSize], rec); err != nil {
		return nil, 0, "it cannot be decoded", nil //nolint:nilerr // the problem is reported as text
	}
	if rec.GetType() != wal.CrcType && rec.GetCrc() != Checksum(crc, rec.Data) {
		return nil, 0, "its checksum is wrong", nil
	}
	return rec, FrameSize + dataSize + padding, "", nil
}

// RecordLength decodes the length field of a record: its length, and the padding after it to a multiple of eight bytes.
func RecordLength(length uint64) (size, padding int64, ok bool) {
	size = int64(length & (1<<56 - 1))
	padding = -size & 7
	top := uint64(0)
	if padding > 0 {
		top = 0x80 | uint64(padding)
	}
	return size, padding, length>>56 == top && 0 < size && size <= maxRecord
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum continues the checksum of the records before with data.
func Checksum(crc uint32, data []byte) uint32 { return crc32.Update(crc, castagnoli, data) }

// addRecord adds the content of a record to the segment, or returns what is wrong with it.
func (s *Segment) addRecord(rec *walpb.Record, each func(*raftpb.Entry)) (problem string) {
	if (s.End == 0) != (rec.GetType() == wal.CrcType) {
		return "it is not the record that belongs there"
	}
	into := func(m proto.Message) bool { return proto.Unmarshal(rec.Data, m) == nil }
	crc, ok := rec.GetCrc(), true
	switch rec.GetType() {
	case wal.CrcType:
		s.startCRC = crc
	case wal.MetadataType:
		ok = s.Metadata == nil || bytes.Equal(s.Metadata, rec.Data)
		s.Metadata = rec.Data
	case wal.StateType:
		s.State = &raftpb.HardState{}
		ok = into(s.State)
	case wal.SnapshotType:
		snapshot := &walpb.Snapshot{}
		ok = into(snapshot)
		s.snapshots = append(s.snapshots, snapshot)
	case wal.EntryType:
		e := &raftpb.Entry{}
		if !into(e) || s.last > 0 && e.GetIndex() > s.last+1 {
			return "it is an entry that does not belong there"
		}
		if s.last == 0 {
			s.from = e.GetIndex()
		}
		s.last, s.lastTerm = e.GetIndex(), e.GetTerm()
		if each != nil {
			each(e)
		}
	default:
		ok = false
	}
	if !ok {
		return "it cannot be decoded"
	}
	s.crc = crc
	return ""
}

// lastByte returns the offset after the last byte that is not zero, or from if there is none after it. It skips holes.
func lastByte(f *os.File, from, size int64) (int64, error) {
	end := from
	buf := make([]byte, 64<<10)
	for at := from; at < size; {
		if data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err == nil {
			at = data
		} else if errors.Is(err, unix.ENXIO) {
			break
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), max(size-at, 0))], at)
		if used := len(bytes.TrimRight(buf[:n], "\x00")); used > 0 {
			end = at + int64(used)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if n == 0 {
			break
		}
		at += int64(n)
	}
	return end, nil
}

// Rest returns the bytes after the last complete record.
func (s *Segment) Rest() ([]byte, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, min(s.RestEnd-s.End, maxRecord))
	_, err = f.ReadAt(data, s.End)
	return data, err
}

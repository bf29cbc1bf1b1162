package solo

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
	// sector is the least that a disk writes: all of it is there or nothing is.
	sector = 512
	// frame is the length before each record of the log.
	frame = 8
	// maxRecord is more than any record of the log has.
	maxRecord = 64 << 20
)

// segment is one file of the log: what its records say, up to the first that is not whole.
type segment struct {
	path string
	// number is that of the file, first the index that its first entry has or will have; both are in its name.
	number, first uint64
	size          int64
	// startCRC is that of all records before this file, by its own first record; crc includes those of this file.
	startCRC, crc uint32
	metadata      []byte
	state         *raftpb.HardState // the last one, nil if there is none
	snapshots     []*walpb.Snapshot
	// from and last are the indexes of the first and the last entry; last is 0 if there is none.
	from, last, lastTerm uint64
	// end is where the last whole record ends. What is behind it is the rest, up to the last byte that is not zero.
	end     int64
	restEnd int64
	// problem says what is wrong with the record at end; it is empty if there is none.
	problem string
	// acknowledgedEnd is where the entry ends whose index was given to readSegment, or where the file begins.
	acknowledgedEnd int64
}

// segmentFiles returns the files of a log, the oldest first.
func segmentFiles(dir string) ([]*segment, error) {
	names, err := filesOf(dir, ".wal")
	if err != nil {
		return nil, err
	}
	var all []*segment
	for _, name := range names {
		s := &segment{path: filepath.Join(dir, name)}
		if n, err := fmt.Sscanf(name, "%016x-%016x.wal", &s.number, &s.first); err == nil && n == 2 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *segment) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// read reads the file. The entries are given to each, which may be nil.
func (s *segment) read(acknowledged uint64, each func(*raftpb.Entry)) error {
	f, err := os.Open(s.path)
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
		rec, size, problem, err := readRecord(r, s.size-s.end, s.crc)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
		if rec == nil && problem == "" && s.end == 0 {
			problem = "it is empty"
		}
		if problem == "" && rec != nil {
			problem = s.take(rec, each)
		}
		if problem != "" || rec == nil {
			s.problem = problem
			s.restEnd, err = lastByte(f, s.end, s.size)
			return err
		}
		s.end += size
		if s.last == acknowledged && rec.GetType() == wal.EntryType {
			s.acknowledgedEnd = s.end
		}
	}
}

// readRecord reads a record that has room bytes at most. It returns nil at the end of the file or of what was written to it, and what is wrong with
// the record if it is not whole.
func readRecord(r io.Reader, room int64, crc uint32) (rec *walpb.Record, size int64, problem string, err error) {
	var head [frame]byte
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
	bytes, padding, ok := recordLength(length)
	if !ok {
		return nil, 0, "it has an impossible length", nil
	}
	if frame+bytes+padding > room {
		return nil, 0, "the file ends in it", nil
	}
	data := make([]byte, bytes+padding)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, 0, "", err
	}
	rec = &walpb.Record{}
	if err := proto.Unmarshal(data[:bytes], rec); err != nil {
		return nil, 0, "it cannot be decoded", nil //nolint:nilerr // it is said in words
	}
	if rec.GetType() != wal.CrcType && rec.GetCrc() != checksum(crc, rec.Data) {
		return nil, 0, "its checksum is wrong", nil
	}
	return rec, frame + bytes + padding, "", nil
}

// recordLength reads the frame of a record: its length, and how many zeros follow it so that the next begins at a multiple of eight.
func recordLength(length uint64) (bytes, padding int64, ok bool) {
	bytes = int64(length & (1<<56 - 1))
	padding = -bytes & 7
	top := uint64(0)
	if padding > 0 {
		top = 0x80 | uint64(padding)
	}
	return bytes, padding, length>>56 == top && 0 < bytes && bytes <= maxRecord
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum goes on from the checksum of the records before.
func checksum(crc uint32, data []byte) uint32 { return crc32.Update(crc, castagnoli, data) }

// take notes what a record says, and returns what is wrong with it.
func (s *segment) take(rec *walpb.Record, each func(*raftpb.Entry)) (problem string) {
	if (s.end == 0) != (rec.GetType() == wal.CrcType) {
		return "it is not the record that belongs there"
	}
	into := func(m proto.Message) bool { return proto.Unmarshal(rec.Data, m) == nil }
	crc, ok := rec.GetCrc(), true
	switch rec.GetType() {
	case wal.CrcType:
		s.startCRC = crc
	case wal.MetadataType:
		ok = s.metadata == nil || bytes.Equal(s.metadata, rec.Data)
		s.metadata = rec.Data
	case wal.StateType:
		s.state = &raftpb.HardState{}
		ok = into(s.state)
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

// lastByte returns where the last byte that is not zero ends, or from if there is none behind it. Holes are not read.
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

// rest returns what is behind the last whole record.
func (s *segment) rest() ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, min(s.restEnd-s.end, maxRecord))
	_, err = f.ReadAt(data, s.end)
	return data, err
}

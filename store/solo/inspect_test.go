package solo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// TestOldFileWithFlippedBit has a flipped bit in a file of the log that nobody needs any more: the last snapshot is after all that it has.
func TestOldFileWithFlippedBit(t *testing.T) {
	cfg := config(t.TempDir())
	// The old files stay.
	cfg.SnapshotEvery = 1 << 30
	m := open(t, cfg)
	l := newLedger()
	for i := 0; len(logFiles(t, cfg.Dir)) < 4; i++ {
		if err := l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 9<<10)), true); err != nil {
			t.Fatal(err)
		}
	}
	kept := copyDir(t, cfg.Dir)
	if err := m.snapshot(); err != nil {
		t.Fatal(err)
	}
	shut(t, m)
	old := 0
	for _, file := range logFiles(t, kept) {
		path := filepath.Join(datadir.ToWALDir(cfg.Dir), filepath.Base(file))
		if _, err := os.Stat(path); err == nil {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if old++; old == 1 {
			data[len(data)/2] ^= 1
		}
		writeFile(t, path, data)
	}
	if old == 0 {
		t.Fatal("the log has no file that nobody needs")
	}
	m = opened(t, cfg)
	l.check(t, ours{m})
}

// TestUnacknowledgedIsWrittenAgain has an entry at the end of the log that was not acknowledged, as a sync leaves it that has failed: it can be
// read, from memory, and may not be on the disk. If it is kept it is written again.
func TestUnacknowledgedIsWrittenAgain(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.BatchInterval = 1<<30, time.Hour
	m := opened(t, cfg)
	mustPut(t, m, "a", "1")
	text := m.log.marker.mark.text()
	mustPut(t, m, "b", "2")
	copied := crash(t, m.Backend(), cfg.Dir)
	writeFile(t, filepath.Join(copied, "member", markFile), []byte(text))
	in, err := inspectLog(copied)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(in.tail().path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := in.check(0); err != nil {
		t.Error(err)
	}
	if _, err := in.settle(0); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(in.tail().path); err != nil || info.ModTime().Before(old.Add(time.Minute)) {
		t.Errorf("it is not written again: %v", err)
	}
	cfg.Dir = copied
	if got := pairs(t, opened(t, cfg).KV(), 0); got["a"].value != "1" || got["b"].value != "2" {
		t.Errorf("there is %v", got)
	}
}

// TestMark reads marks, whole and not.
func TestMark(t *testing.T) {
	m := mark{boot: thisBoot(), node: 1 << 63, cluster: 2, term: 3, index: 1 << 60, file: 5}
	text := m.text()
	if got, err := parseMark(text + strings.Repeat("\x00", 20)); err != nil || got != m {
		t.Errorf("%v, %v", got, err)
	}
	if len(text) > sector {
		t.Errorf("the mark has %d bytes", len(text))
	}
	for i := range len(text) - 1 {
		changed := []byte(text)
		changed[i] ^= 1
		if got, err := parseMark(string(changed)); err == nil {
			t.Errorf("byte %d changed: %v", i, got)
		}
	}
}

// FuzzSegment reads files of the log that somebody has made up: lengths that are too large, records that end early.
func FuzzSegment(f *testing.F) {
	record := func(r *walpb.Record) []byte {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		length := uint64(len(data))
		if padding := -len(data) & 7; padding > 0 {
			length |= uint64(0x80|padding) << 56
			data = append(data, make([]byte, padding)...)
		}
		return append(binary.LittleEndian.AppendUint64(nil, length), data...)
	}
	head := record(&walpb.Record{Type: new(wal.CrcType), Crc: new(uint32(0))})
	f.Add(head)
	f.Add(append(head, record(&walpb.Record{Type: new(wal.MetadataType), Crc: new(checksum(0, []byte("a"))), Data: []byte("a")})...))
	f.Add(binary.LittleEndian.AppendUint64(head, 1<<55))
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &segment{path: filepath.Join(t.TempDir(), "0000000000000000-0000000000000000.wal")}
		writeFile(t, s.path, data)
		if err := s.read(0, nil); err != nil {
			t.Fatal(err)
		}
		if s.end > int64(len(data)) || s.restEnd > int64(len(data)) || s.restEnd < s.end {
			t.Fatalf("%d bytes: records up to %d, the rest up to %d", len(data), s.end, s.restEnd)
		}
		rest, err := s.rest()
		if err != nil {
			t.Fatal(err)
		}
		notUnfinished(rest, s.end, claimsIn(rest, 1))
	})
}

// TestNotUnfinished tells what a write that was never finished leaves behind from what it does not.
func TestNotUnfinished(t *testing.T) {
	record := func(size int) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(size)), bytes.Repeat([]byte("x"), size)...)
	}
	without := func(data []byte, from, to int) []byte {
		data = bytes.Clone(data)
		clear(data[from:to])
		return data
	}
	for _, c := range []struct {
		name string
		rest []byte
		at   int64
		ok   bool

		claims []claim
	}{
		{"all is there, and wrong", record(2000), 0, false, nil},
		{"a sector is missing", without(record(2000), 512, 1024), 0, true, nil},
		{"half a sector is missing", without(record(2000), 512, 768), 0, false, nil},
		{"a sector is missing at another place of the file", without(record(2000), 512-64, 1024-64), 64, true, nil},
		{"the end is missing", record(2000)[:1000], 0, true, nil},
		{"the first sector is missing", without(record(2000), 0, 512), 0, true, nil},
		{"only the length is missing", without(record(2000), 0, 8), 0, false, nil},
		{"the rest of the first sector is missing", without(record(2000), 0, 64), 448, true, nil},
		{"an impossible length", append(binary.LittleEndian.AppendUint64(nil, 1<<50|2000), record(2000)...), 0, false, nil},
		{"a length that is too large", append(binary.LittleEndian.AppendUint64(nil, 1<<16), record(2000)...), 0, true, nil},
		{"a length that is too large, with another record", append(binary.LittleEndian.AppendUint64(nil, 1<<16), record(2000)...), 0, false, []claim{{1600, 1}}},
		{"too much", make([]byte, maxUnfinished+1), 0, false, nil},
		{"a small record in one sector", record(80), 0, false, nil},
	} {
		if problem := notUnfinished(c.rest, c.at, c.claims); (problem == "") != c.ok {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
}

// TestNewestFileIsGone removes the newest file of the log before anything was acknowledged that is in it.
func TestNewestFileIsGone(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.BatchInterval = 1<<30, time.Hour
	m := opened(t, cfg)
	for i := 0; len(logFiles(t, cfg.Dir)) < 2; i++ {
		mustPut(t, m, fmt.Sprint(i), strings.Repeat("x", 9<<10))
	}
	copied := cfg
	copied.Dir = crash(t, m.Backend(), cfg.Dir)
	remove(t, logFiles(t, copied.Dir)[1])
	if err := refused(t, copied); err == nil || !strings.Contains(err.Error(), "which is gone") {
		t.Errorf("error %v", err)
	}
}

// TestMarkNamesNewestFile: the mark has the number of the log's newest file after every change, small or large, and after a start.
func TestMarkNamesNewestFile(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 100
	last := uint64(0)
	for range 3 {
		m := open(t, cfg)
		for i := range 300 {
			mustPut(t, m, "a", strings.Repeat("x", i*i%3000))
			files, err := segmentFiles(datadir.ToWALDir(cfg.Dir))
			if err != nil {
				t.Fatal(err)
			}
			if last = files[len(files)-1].number; m.log.marker.mark.file != last {
				t.Fatalf("the mark has file %d, the log %d", m.log.marker.mark.file, last)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if last < 10 {
		t.Errorf("the log has begun only %d files", last)
	}
}

func (m mark) text() string { return string(m.append(nil)) }

// BenchmarkAcknowledge is what it costs to note that an entry was synced.
func BenchmarkAcknowledge(b *testing.B) {
	dir := b.TempDir()
	j, err := newJournal(dir, 1, 2, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	b.ReportAllocs()
	for b.Loop() {
		j.last++
		if err := j.acknowledge(); err != nil {
			b.Fatal(err)
		}
	}
}

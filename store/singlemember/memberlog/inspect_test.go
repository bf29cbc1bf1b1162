package memberlog

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// TestParseAcknowledgment parses valid and invalid acknowledgment files.
func TestParseAcknowledgment(t *testing.T) {
	m := Acknowledgment{Boot: BootID(), Node: 1 << 63, Cluster: 2, Term: 3, Index: 1 << 60, File: 5}
	text := string(m.Append(nil))
	if got, err := ParseAcknowledgment(text + strings.Repeat("\x00", 20)); err != nil || got != m {
		t.Errorf("%v, %v", got, err)
	}
	if len(text) > Sector {
		t.Errorf("the mark has %d bytes", len(text))
	}
	for i := range len(text) - 1 {
		changed := []byte(text)
		changed[i] ^= 1
		if got, err := ParseAcknowledgment(string(changed)); err == nil {
			t.Errorf("byte %d changed: %v", i, got)
		}
	}
}

// FuzzSegment reads arbitrary segments, such as with lengths that are too large or records that end early.
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
	f.Add(append(head, record(&walpb.Record{Type: new(wal.MetadataType), Crc: new(Checksum(0, []byte("a"))), Data: []byte("a")})...))
	f.Add(binary.LittleEndian.AppendUint64(head, 1<<55))
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Segment{Path: filepath.Join(t.TempDir(), "0000000000000000-0000000000000000.wal")}
		if err := os.WriteFile(s.Path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Read(0, nil); err != nil {
			t.Fatal(err)
		}
		if s.End > int64(len(data)) || s.RestEnd > int64(len(data)) || s.RestEnd < s.End {
			t.Fatalf("%d bytes: records up to %d, the rest up to %d", len(data), s.End, s.RestEnd)
		}
		rest, err := s.Rest()
		if err != nil {
			t.Fatal(err)
		}
		whyNotUnfinished(rest, s.End, ClaimsIn(rest, 1))
	})
}

// TestUnfinishedWrites checks which bytes after the last record are recognized as an unfinished write.
func TestUnfinishedWrites(t *testing.T) {
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

		claims []Claim
	}{
		{"all sectors are there, with a wrong checksum", record(2000), 0, false, nil},
		{"a sector is missing", without(record(2000), 512, 1024), 0, true, nil},
		{"half a sector is missing", without(record(2000), 512, 768), 0, false, nil},
		{"a sector is missing at another place of the file", without(record(2000), 512-64, 1024-64), 64, true, nil},
		{"the end is missing", record(2000)[:1000], 0, true, nil},
		{"the first sector is missing", without(record(2000), 0, 512), 0, true, nil},
		{"only the length is missing", without(record(2000), 0, 8), 0, false, nil},
		{"the rest of the first sector is missing", without(record(2000), 0, 64), 448, true, nil},
		{"an impossible length", append(binary.LittleEndian.AppendUint64(nil, 1<<50|2000), record(2000)...), 0, false, nil},
		{"a length that is too large", append(binary.LittleEndian.AppendUint64(nil, 1<<16), record(2000)...), 0, true, nil},
		{"a length that is too large, with another record", append(binary.LittleEndian.AppendUint64(nil, 1<<16), record(2000)...), 0, false,
			[]Claim{{At: 1600, Index: 1}}},
		{"more bytes than an unfinished write can have", make([]byte, maxUnfinished+1), 0, false, nil},
		{"a small record in one sector", record(80), 0, false, nil},
		{"only the length is there, at the end of a sector", record(2000)[:2], 504, true, nil},
		{"only the length is there, of a record in one sector", record(80)[:1], 0, false, nil},
	} {
		if problem := whyNotUnfinished(c.rest, c.at, c.claims); (problem == "") != c.ok {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
}

// BenchmarkAcknowledge measures recording that an entry was synced.
func BenchmarkAcknowledge(b *testing.B) {
	dir := b.TempDir()
	j, err := Create(dir, 1, 2, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	b.ReportAllocs()
	for b.Loop() {
		j.Last++
		if err := j.acknowledge(); err != nil {
			b.Fatal(err)
		}
	}
}

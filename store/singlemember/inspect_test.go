package singlemember

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/datadir"

	"proa.dev/store/singlemember/memberlog"
)

// TestOldFileWithFlippedBit flips a bit in a segment that is not needed any more, because all its entries are before
// the last snapshot.
func TestOldFileWithFlippedBit(t *testing.T) {
	cfg := config(t.TempDir())
	// The old files are not purged.
	cfg.SnapshotEvery = 1 << 30
	m := open(t, cfg)
	l := newAckedWrites()
	for i := 0; len(logFiles(t, cfg.Dir)) < 4; i++ {
		if err := l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 9<<10)), true); err != nil {
			t.Fatal(err)
		}
	}
	kept := copyDir(t, cfg.Dir)
	if err := m.snapshot(); err != nil {
		t.Fatal(err)
	}
	closeMember(t, m)
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
		t.Fatal("the log has no unneeded segment")
	}
	m = openWithCleanup(t, cfg)
	l.check(t, proaMember{m})
}

// TestUnacknowledgedIsWrittenAgain opens a log whose last entry was not acknowledged, as after a failed sync: it can be
// read from the page cache, but may not be on the disk. If the member keeps the entry, it must write it again.
func TestUnacknowledgedIsWrittenAgain(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.BatchInterval = 1<<30, time.Hour
	m := openWithCleanup(t, cfg)
	mustPut(t, m, "a", "1")
	text := string(m.log.AcknowledgedFile.Last.Append(nil))
	mustPut(t, m, "b", "2")
	copied := crashCopy(t, m.Backend(), cfg.Dir)
	writeFile(t, filepath.Join(copied, "member", memberlog.AcknowledgedFile), []byte(text))
	in, err := memberlog.Inspect(copied)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(in.Tail().Path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := in.Check(0); err != nil {
		t.Error(err)
	}
	if _, err := in.RemoveUnfinished(0); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(in.Tail().Path); err != nil || info.ModTime().Before(old.Add(time.Minute)) {
		t.Errorf("it is not written again: %v", err)
	}
	cfg.Dir = copied
	if got := pairs(t, openWithCleanup(t, cfg).KV(), 0); got["a"].value != "1" || got["b"].value != "2" {
		t.Errorf("there is %v", got)
	}
}

// TestNewestSegmentMissing removes the newest segment before any of its entries was acknowledged.
func TestNewestSegmentMissing(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.BatchInterval = 1<<30, time.Hour
	m := openWithCleanup(t, cfg)
	for i := 0; len(logFiles(t, cfg.Dir)) < 2; i++ {
		mustPut(t, m, fmt.Sprint(i), strings.Repeat("x", 9<<10))
	}
	copied := cfg
	copied.Dir = crashCopy(t, m.Backend(), cfg.Dir)
	remove(t, logFiles(t, copied.Dir)[1])
	if err := expectOpenError(t, copied); err == nil || !strings.Contains(err.Error(), "which is gone") {
		t.Errorf("error %v", err)
	}
}

// TestAcknowledgmentNamesNewestSegment checks that the acknowledgment file has the number of the log's newest segment after
// every change, small or large, and after a start.
func TestAcknowledgmentNamesNewestSegment(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 100
	last := uint64(0)
	for range 3 {
		m := open(t, cfg)
		for i := range 300 {
			mustPut(t, m, "a", strings.Repeat("x", i*i%3000))
			files, err := memberlog.Segments(datadir.ToWALDir(cfg.Dir))
			if err != nil {
				t.Fatal(err)
			}
			if last = files[len(files)-1].Number; m.log.AcknowledgedFile.Last.File != last {
				t.Fatalf("the acknowledgment has segment %d, the log %d", m.log.AcknowledgedFile.Last.File, last)
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

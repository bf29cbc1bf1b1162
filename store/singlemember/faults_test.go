package singlemember

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"proa.dev/store/singlemember/memberlog"
)

// TestEmptyRangeEnd has an end of a range that is empty and not nil. The log does not know the difference, so what is
// applied at once must not know it either: it would be another change than the one that is applied after a crash.
func TestEmptyRangeEnd(t *testing.T) {
	cfg := config(t.TempDir())
	m := opened(t, cfg)
	mustPut(t, m, "a", "1")
	mustPut(t, m, "b", "1")
	if _, err := m.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{}}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if got := pairs(t, m.KV(), 0); len(got) != 1 || got["b"].value != "1" {
		t.Errorf("a was deleted; there is %v", got)
	}
}

// meeting is a quota that blocks until all callers have arrived.
type meeting struct {
	storage.Quota
	all sync.WaitGroup
}

func (m *meeting) Available(any) bool {
	m.all.Done()
	m.all.Wait()
	return true
}

// TestGrantIDsDiffer makes leases at the same time.
func TestGrantIDsDiffer(t *testing.T) {
	m := opened(t, config(t.TempDir()))
	const n = 3
	meet := &meeting{Quota: m.quota}
	meet.all.Add(n)
	m.quota = meet
	var all sync.WaitGroup
	ids := make([]int64, n)
	for i := range n {
		all.Go(func() {
			if r, err := m.Grant(t.Context(), long); err != nil {
				t.Errorf("grant: %v", err)
			} else if ids[i] = r.ID; r.ID <= 0 {
				t.Errorf("lease %d", r.ID)
			}
		})
	}
	all.Wait()
	slices.Sort(ids)
	if got := len(slices.Compact(ids)); got != n || len(m.Leases()) != n {
		t.Errorf("%d grants gave %d ids and %d leases", n, got, len(m.Leases()))
	}
}

// TestPanicLeavesNothingOpen opens data of a newer version, at which etcd panics. A second attempt must not wait for
// the locks of the first.
func TestPanicLeavesNothingOpen(t *testing.T) {
	cfg := config(t.TempDir())
	shut(t, open(t, cfg))
	m := &Member{cfg: cfg}
	m.openBackend()
	schema.NewMembershipBackend(cfg.Log, m.backend).MustSaveClusterVersionToBackend(semver.New("9.0.0"))
	if err := m.backend.Close(); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, cfg); err == nil || !strings.Contains(err.Error(), "unusable data") {
		t.Errorf("error %v", err)
	}
}

// TestUnreadableLogIsKept has a log whose beginning is destroyed and no database. It may be refused, but what can be
// saved from it by hand must not be removed.
func TestUnreadableLogIsKept(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	mustPut(t, m, "a", "precious")
	shut(t, m)
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	file := logFiles(t, cfg.Dir)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, "garbage")
	writeFile(t, file, data)
	if m, err := Open(t.Context(), cfg); err == nil {
		shut(t, m)
	}
	found := false
	if err := filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte("precious"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Error("the log is gone")
	}
}

// TestLogPanics uses a log that panics. The caller may recover from the panic, as an HTTP server does, so the write
// turn must not be lost.
func TestLogPanics(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.WriteTimeout = 100 * time.Millisecond
	m := opened(t, cfg)
	mustPut(t, m, "first", "1")
	m.log.Storage = &badLog{Storage: m.log.Storage, save: func(int64, func() error) error { panic(errDisk) }}
	func() {
		defer func() { _ = recover() }()
		if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) {
			t.Errorf("who writes the log: %v", err)
		}
	}()
	refuses(t, m)
}

// TestSyncFailsWhileMending has a file of the log that can be neither written nor synced for a while. The write may be
// tried again. The sync, with which the log is closed for that, may not: that is final, also when the file can be
// written again.
func TestSyncFailsWhileMending(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	lost := 0
	cfg.OnFatal = func(error) { lost++ }
	m := open(t, cfg)
	l := newLedger()
	for i := range 10 {
		if err := l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 20<<10)), true); err != nil {
			t.Fatal(err)
		}
	}
	files := logFiles(t, cfg.Dir)
	restore := fail(t, files[len(files)-1])
	for _, want := range []int{0, 1, 1} {
		if _, err := again(t, m); !errors.Is(err, ErrBroken) || lost != want {
			t.Errorf("error %v; lost %d times, want %d", err, lost, want)
		}
	}
	restore()
	if _, err := again(t, m); !errors.Is(err, ErrBroken) || !errors.As(err, new(memberlog.SyncError)) || lost != 1 {
		t.Errorf("when the file can be written again: %v; lost %d times", err, lost)
	}
	shut(t, m)
	if files := openFiles(t, cfg.Dir); len(files) > 0 {
		t.Errorf("open after the close: %s", files)
	}
	m = opened(t, cfg)
	l.check(t, ours{m})
	sameAsLog(t, m)
}

// again makes a change as if the interval for reopening the log had passed.
func again(t *testing.T, m *Member) (*pb.TxnResponse, error) {
	t.Helper()
	m.writeTurn.mu.Lock()
	m.writeTurn.lastAttempt = time.Time{}
	m.writeTurn.mu.Unlock()
	return m.Txn(t.Context(), put("a", "1"))
}

// fail makes writes and syncs of an open file fail.
func fail(t *testing.T, path string) (restore func()) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	want, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// The name may be that from before it was renamed.
		if is, err := os.Stat("/proc/self/fd/" + fd.Name()); err != nil || !os.SameFile(is, want) {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		keep, err := syscall.Dup(n)
		if err != nil {
			t.Fatal(err)
		}
		syscall.CloseOnExec(keep)
		if err := syscall.Dup3(int(full.Fd()), n, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := errors.Join(syscall.Dup3(keep, n, syscall.O_CLOEXEC), syscall.Close(keep)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Fatalf("%s is not open", path)
	return nil
}

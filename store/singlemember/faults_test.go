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

// TestEmptyRangeEnd checks that a range end that is empty but not nil counts as none. The encoded entry of the log cannot
// tell the two apart, so the member must not either: after a crash another change would be applied than before it.
func TestEmptyRangeEnd(t *testing.T) {
	cfg := config(t.TempDir())
	m := openWithCleanup(t, cfg)
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

// barrierQuota is a quota that blocks until all callers have arrived.
type barrierQuota struct {
	storage.Quota
	callers sync.WaitGroup
}

func (m *barrierQuota) Available(any) bool {
	m.callers.Done()
	m.callers.Wait()
	return true
}

// TestGrantIDsDiffer checks that leases granted at the same time have different IDs.
func TestGrantIDsDiffer(t *testing.T) {
	m := openWithCleanup(t, config(t.TempDir()))
	const n = 3
	barrier := &barrierQuota{Quota: m.quota}
	barrier.callers.Add(n)
	m.quota = barrier
	var wg sync.WaitGroup
	ids := make([]int64, n)
	for i := range n {
		wg.Go(func() {
			if r, err := m.Grant(t.Context(), longTTL); err != nil {
				t.Errorf("grant: %v", err)
			} else if ids[i] = r.ID; r.ID <= 0 {
				t.Errorf("lease %d", r.ID)
			}
		})
	}
	wg.Wait()
	slices.Sort(ids)
	if got := len(slices.Compact(ids)); got != n || len(m.Leases()) != n {
		t.Errorf("%d grants gave %d ids and %d leases", n, got, len(m.Leases()))
	}
}

// TestPanicLeavesNothingOpen opens data of a newer version, at which etcd panics. A second attempt must not wait for
// the locks of the first.
func TestPanicLeavesNothingOpen(t *testing.T) {
	cfg := config(t.TempDir())
	closeMember(t, open(t, cfg))
	m := &Member{cfg: cfg}
	m.openBackend()
	schema.NewMembershipBackend(cfg.Log, m.backend).MustSaveClusterVersionToBackend(semver.New("9.0.0"))
	if err := m.backend.Close(); err != nil {
		t.Fatal(err)
	}
	if err := expectOpenError(t, cfg); err == nil || !strings.Contains(err.Error(), "unusable data") {
		t.Errorf("error %v", err)
	}
}

// TestUnreadableLogIsKept opens a log whose beginning is destroyed, without a database. It may be refused, but its data,
// which an administrator could still recover, must not be removed.
func TestUnreadableLogIsKept(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	mustPut(t, m, "a", "precious")
	closeMember(t, m)
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	file := logFiles(t, cfg.Dir)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, "garbage")
	writeFile(t, file, data)
	if m, err := Open(t.Context(), cfg); err == nil {
		closeMember(t, m)
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
	m := openWithCleanup(t, cfg)
	mustPut(t, m, "first", "1")
	m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(int64, func() error) error { panic(errDisk) }}
	func() {
		defer func() { _ = recover() }()
		if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) {
			t.Errorf("the writer of the log: %v", err)
		}
	}()
	expectBroken(t, m)
}

// TestFailedSyncDuringReopenIsFinal makes writes and syncs of a file of the log fail for a while. The failed write may be
// retried. The failed sync, which happens when the log is closed to be reopened, is final, even when the file can be
// written again.
func TestFailedSyncDuringReopenIsFinal(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	fatalCalls := 0
	cfg.OnFatal = func(error) { fatalCalls++ }
	m := open(t, cfg)
	l := newAckedWrites()
	for i := range 10 {
		if err := l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 20<<10)), true); err != nil {
			t.Fatal(err)
		}
	}
	files := logFiles(t, cfg.Dir)
	restore := failFile(t, files[len(files)-1])
	for _, want := range []int{0, 1, 1} {
		if _, err := txnAfterReopenInterval(t, m); !errors.Is(err, ErrBroken) || fatalCalls != want {
			t.Errorf("error %v; OnFatal was called %d times, want %d", err, fatalCalls, want)
		}
	}
	restore()
	if _, err := txnAfterReopenInterval(t, m); !errors.Is(err, ErrBroken) || !errors.As(err, new(memberlog.SyncError)) || fatalCalls != 1 {
		t.Errorf("when the file can be written again: %v; OnFatal was called %d times", err, fatalCalls)
	}
	closeMember(t, m)
	if files := openFiles(t, cfg.Dir); len(files) > 0 {
		t.Errorf("open after the close: %s", files)
	}
	m = openWithCleanup(t, cfg)
	l.check(t, proaMember{m})
	sameAsLog(t, m)
}

// txnAfterReopenInterval makes a change as if the interval for reopening the log had passed.
func txnAfterReopenInterval(t *testing.T, m *Member) (*pb.TxnResponse, error) {
	t.Helper()
	m.writeTurn.mu.Lock()
	m.writeTurn.lastAttempt = time.Time{}
	m.writeTurn.mu.Unlock()
	return m.Txn(t.Context(), put("a", "1"))
}

// failFile makes writes and syncs of an open file fail.
func failFile(t *testing.T, path string) (restore func()) {
	t.Helper()
	devFull, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer devFull.Close()
	want, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// Files are compared by inode, because the link may still have the name from before a rename.
		if is, err := os.Stat("/proc/self/fd/" + fd.Name()); err != nil || !os.SameFile(is, want) {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		saved, err := syscall.Dup(n)
		if err != nil {
			t.Fatal(err)
		}
		syscall.CloseOnExec(saved)
		if err := syscall.Dup3(int(devFull.Fd()), n, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := errors.Join(syscall.Dup3(saved, n, syscall.O_CLOEXEC), syscall.Close(saved)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Fatalf("%s is not open", path)
	return nil
}

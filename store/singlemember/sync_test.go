package singlemember

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"golang.org/x/sys/unix"

	"proa.dev/store/singlemember/memberlog"
)

// inOwnProcess runs the rest of a test in a process of its own, for limits and filters that a process has as a whole.
// In that process it returns what the test is run with; in the other it returns false.
func inOwnProcess(t *testing.T, with ...string) (string, bool) {
	t.Helper()
	const own = "PROA_TEST_OWN_PROCESS"
	if with := os.Getenv(own); with != "" {
		return with, true
	}
	for _, w := range with {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), own+"="+w)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) && !strings.Contains(string(out), "--- SKIP: "+t.Name()) {
			t.Errorf("%s: %v\n%s", w, err, out)
		}
	}
	return "", false
}

// failCalls makes every system call of a kind fail in this process from now on. The kernel does it, by a filter that
// needs no rights.
func failCalls(t *testing.T, call uint32, with syscall.Errno) {
	t.Helper()
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		isEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer  = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load}, // the number of the system call is the first word
		{Code: isEqual, K: call, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(with)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skip("filters are not allowed here:", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		t.Skip("filters are not allowed here:", errno)
	}
}

// TestFailedSyncIsFinal has an fdatasync that fails, with each of the errors that a write may be tried again after, and
// others. Nothing is acknowledged after it, however often it is tried, and what was acknowledged before is there after
// a start.
func TestFailedSyncIsFinal(t *testing.T) {
	kinds := []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS}
	with := make([]string, 0, len(kinds))
	for _, e := range kinds {
		with = append(with, strconv.Itoa(int(e)))
	}
	kind, own := inOwnProcess(t, with...)
	if !own {
		return
	}
	n, err := strconv.Atoi(kind)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t.TempDir())
	// The database is not written meanwhile: etcd ends the process when that fails.
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	var lost []error
	cfg.OnFatal = func(err error) { lost = append(lost, err) }
	m := open(t, cfg)
	l := newLedger()
	for i := range 10 {
		if err := l.write(t.Context(), m, fmt.Sprint(i), true); err != nil {
			t.Fatal(err)
		}
	}
	failCalls(t, unix.SYS_FDATASYNC, syscall.Errno(n))
	for range 3 {
		if _, err := again(t, m); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.Errno(n)) {
			t.Errorf("error %v", err)
		}
	}
	if len(lost) != 1 || !errors.As(lost[0], new(memberlog.SyncError)) || !errors.Is(lost[0], syscall.Errno(n)) {
		t.Errorf("lost: %v", lost)
	}
	l.check(t, ours{m})
}

// TestFailedReservationIsNotFinal has no room for the next file of the log, which the log finds out when it needs that
// file. That is no failed sync: it is tried again.
func TestFailedReservationIsNotFinal(t *testing.T) {
	if _, own := inOwnProcess(t, "1"); !own {
		return
	}
	cfg := config(t.TempDir())
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	cfg.OnFatal = func(err error) { t.Errorf("lost: %v", err) }
	m := open(t, cfg)
	l := newLedger()
	failCalls(t, unix.SYS_FALLOCATE, syscall.ENOSPC)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 9<<10)), true)
	}
	for range 3 {
		if !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		_, err = again(t, m)
	}
	l.check(t, ours{m})
}

// TestFailure knows the writes and syncs of etcd's log by their errors.
func TestFailure(t *testing.T) {
	m := opened(t, config(t.TempDir()))
	mustPut(t, m, "a", "1")
	for err, mendable := range map[error]bool{
		error(syscall.ENOSPC): false,
		error(syscall.EIO):    false,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC}: true,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.EDQUOT}: true,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.EIO}:    false,
		&fs.PathError{Op: "sync", Path: "log", Err: syscall.ENOSPC}:  false,
		&os.LinkError{Op: "rename", Err: syscall.ENOSPC}:             true,
	} {
		if got := memberlog.CanReopen(m.log.WrapSyncError(err)); got != mendable {
			t.Errorf("%v: mendable %v", err, got)
		}
	}
	if err := m.log.WrapSyncError(nil); err != nil {
		t.Error(err)
	}
	// A disk that was full before has no next file. A sync that fails is final all the same.
	next, err := filepath.Glob(filepath.Join(datadir.ToWALDir(m.cfg.Dir), "*.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range next {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if memberlog.CanReopen(m.log.WrapSyncError(syscall.ENOSPC)) {
		t.Error("without a next file a failed sync is mendable")
	}
}

// TestEIOWhileMendingIsFinal has no room for a write, and a disk that fails with EIO when the log is tried again.
// Nothing is acknowledged after that.
func TestEIOWhileMendingIsFinal(t *testing.T) {
	if _, own := inOwnProcess(t, "1"); !own {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	cfg := config(t.TempDir())
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	var lost []error
	cfg.OnFatal = func(err error) { lost = append(lost, err) }
	m := open(t, cfg)
	l := newLedger()
	if err := l.write(t.Context(), m, "first", true); err != nil {
		t.Fatal(err)
	}
	restore := limitFiles(t, 512)
	if _, err := again(t, m); !errors.Is(err, ErrBroken) || len(lost) > 0 {
		t.Errorf("error %v, lost %v", err, lost)
	}
	restore()
	failCalls(t, unix.SYS_FDATASYNC, syscall.EIO)
	for range 3 {
		if _, err := again(t, m); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) || len(lost) != 1 {
			t.Errorf("error %v, lost %v", err, lost)
		}
	}
	l.check(t, ours{m})
}

// TestWorthRetrying knows what may be tried again after the log could not be opened again.
func TestWorthRetrying(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Op: "write", Err: syscall.ENOSPC}:                       true,
		&fs.PathError{Op: "open", Err: syscall.ENOENT}:                        true,
		error(syscall.EMFILE):                                                 true,
		&fs.PathError{Op: "read", Err: syscall.EIO}:                           false,
		errors.Join(syscall.ENOSPC, &fs.PathError{Op: "r", Err: syscall.EIO}): false,
		error(memberlog.SyncError{Err: syscall.ENOSPC}):                       false,
		memberlog.Damaged("something"):                                        false,
	} {
		if got := memberlog.CanRetryReopen(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

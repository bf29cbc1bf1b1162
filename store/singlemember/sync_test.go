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

// inSubprocess runs a test once for each argument in a subprocess, for limits and filters that count for a whole process.
// In a subprocess it returns the argument and true, in the parent it waits for the subprocesses and returns false.
func inSubprocess(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	const envName = "PROA_TEST_OWN_PROCESS"
	if args := os.Getenv(envName); args != "" {
		return args, true
	}
	for _, w := range args {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), envName+"="+w)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) && !strings.Contains(string(out), "--- SKIP: "+t.Name()) {
			t.Errorf("%s: %v\n%s", w, err, out)
		}
	}
	return "", false
}

// failSyscalls makes every system call with this number fail in this process from now on. It uses a seccomp filter, which
// needs no privileges.
func failSyscalls(t *testing.T, call uint32, with syscall.Errno) {
	t.Helper()
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		isEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load}, // the number of the system call is the first word
		{Code: isEqual, K: call, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(with)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
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

// TestFailedSyncIsFinal makes fdatasync fail, also with the errors after which a failed write may be retried. Nothing may be
// acknowledged after that, however often it is tried, and earlier acknowledged writes must still be readable.
func TestFailedSyncIsFinal(t *testing.T) {
	errnos := []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS}
	args := make([]string, 0, len(errnos))
	for _, e := range errnos {
		args = append(args, strconv.Itoa(int(e)))
	}
	arg, inChild := inSubprocess(t, args...)
	if !inChild {
		return
	}
	n, err := strconv.Atoi(arg)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t.TempDir())
	// The database is not written meanwhile: etcd ends the process when that fails.
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	var fatalErrs []error
	cfg.OnFatal = func(err error) { fatalErrs = append(fatalErrs, err) }
	m := open(t, cfg)
	l := newAckedWrites()
	for i := range 10 {
		if err := l.write(t.Context(), m, fmt.Sprint(i), true); err != nil {
			t.Fatal(err)
		}
	}
	failSyscalls(t, unix.SYS_FDATASYNC, syscall.Errno(n))
	for range 3 {
		if _, err := txnAfterReopenInterval(t, m); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.Errno(n)) {
			t.Errorf("error %v", err)
		}
	}
	if len(fatalErrs) != 1 || !errors.As(fatalErrs[0], new(memberlog.SyncError)) || !errors.Is(fatalErrs[0], syscall.Errno(n)) {
		t.Errorf("OnFatal: %v", fatalErrs)
	}
	l.check(t, proaMember{m})
}

// TestFailedReservationIsNotFinal makes preallocating the next segment fail, which the log notices when it needs that
// segment. That is no failed sync, so it may be retried.
func TestFailedReservationIsNotFinal(t *testing.T) {
	if _, inChild := inSubprocess(t, "1"); !inChild {
		return
	}
	cfg := config(t.TempDir())
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	cfg.OnFatal = func(err error) { t.Errorf("OnFatal: %v", err) }
	m := open(t, cfg)
	l := newAckedWrites()
	failSyscalls(t, unix.SYS_FALLOCATE, syscall.ENOSPC)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = l.write(t.Context(), m, fmt.Sprint(i, strings.Repeat("x", 9<<10)), true)
	}
	for range 3 {
		if !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		_, err = txnAfterReopenInterval(t, m)
	}
	l.check(t, proaMember{m})
}

// TestCanReopenAfterError checks after which errors of etcd's log it may be reopened: those of writes, but not of syncs.
func TestCanReopenAfterError(t *testing.T) {
	m := openWithCleanup(t, config(t.TempDir()))
	mustPut(t, m, "a", "1")
	for err, canReopen := range map[error]bool{
		error(syscall.ENOSPC): false,
		error(syscall.EIO):    false,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC}: true,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.EDQUOT}: true,
		&fs.PathError{Op: "write", Path: "log", Err: syscall.EIO}:    false,
		&fs.PathError{Op: "sync", Path: "log", Err: syscall.ENOSPC}:  false,
		&os.LinkError{Op: "rename", Err: syscall.ENOSPC}:             true,
	} {
		if got := memberlog.CanReopen(m.log.WrapSyncError(err)); got != canReopen {
			t.Errorf("%v: can reopen %v", err, got)
		}
	}
	if err := m.log.WrapSyncError(nil); err != nil {
		t.Error(err)
	}
	// On a disk that was full before, there is no next segment. A failed sync is final all the same.
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
		t.Error("without a next segment the log can be reopened after a failed sync")
	}
}

// TestEIODuringReopenIsFinal makes a write fail for lack of space, and fdatasync with EIO when the log is reopened. Nothing
// may be acknowledged after that.
func TestEIODuringReopenIsFinal(t *testing.T) {
	if _, inChild := inSubprocess(t, "1"); !inChild {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	cfg := config(t.TempDir())
	cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
	var fatalErrs []error
	cfg.OnFatal = func(err error) { fatalErrs = append(fatalErrs, err) }
	m := open(t, cfg)
	l := newAckedWrites()
	if err := l.write(t.Context(), m, "first", true); err != nil {
		t.Fatal(err)
	}
	restore := limitFiles(t, 512)
	if _, err := txnAfterReopenInterval(t, m); !errors.Is(err, ErrBroken) || len(fatalErrs) > 0 {
		t.Errorf("error %v, OnFatal %v", err, fatalErrs)
	}
	restore()
	failSyscalls(t, unix.SYS_FDATASYNC, syscall.EIO)
	for range 3 {
		if _, err := txnAfterReopenInterval(t, m); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) || len(fatalErrs) != 1 {
			t.Errorf("error %v, OnFatal %v", err, fatalErrs)
		}
	}
	l.check(t, proaMember{m})
}

// TestCanRetryReopen checks after which errors of reopening the log that may be tried again.
func TestCanRetryReopen(t *testing.T) {
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

package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// pidFile names the process that runs the cluster of a folder. That process holds a lock on it for as long as it lives, and
// the kernel says who holds a lock: so the number left in the file by a killed process, which may be that of a stranger by
// now, misleads nobody.
const pidFile = "server.pid"

// Hold makes this process the one that runs the cluster in dir. It fails when another process does. release gives the
// folder free; the kernel does so too when the process ends in any way.
func Hold(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, pidFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim the data folder: %w", err)
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		defer f.Close()
		pid, _ := locker(f)
		return nil, fmt.Errorf("the cluster in %s is already running (process %d); \"proa down\" stops it, --data-dir chooses another", dir, pid)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("claim the data folder: %w", err)
	}
	return func() {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}, nil
}

// Holder is the process that runs the cluster in dir, or zero if none does. It is for other processes: the kernel does not
// show a process its own lock, and forgets it when that process closes the file.
func Holder(dir string) (pid int, err error) {
	f, err := os.Open(filepath.Join(dir, pidFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return locker(f)
}

func locker(f *os.File) (int, error) {
	l := syscall.Flock_t{Type: syscall.F_RDLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("see who runs the cluster: %w", err)
	}
	if l.Type == syscall.F_UNLCK {
		return 0, nil
	}
	return int(l.Pid), nil
}

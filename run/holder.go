package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pidFile names the process that runs the cluster of a folder. That process holds a lock on it for as long as it lives, and
// the kernel says who holds a lock: so the number left in the file by a killed process, which may be that of a stranger by
// now, misleads nobody.
const pidFile = "server.pid"

// stopTimeFile says how long the process named in pidFile may take to stop. It is a file of its own, so that pidFile has one number only, as scripts expect it.
const stopTimeFile = "server.stop-time"

// Hold makes this process the one that runs the cluster in dir. It fails when another process does. release gives the
// folder free; the kernel does so too when the process ends in any way. Whoever stops the process reads by StopTime how long that may take.
func Hold(dir string, stopTime time.Duration) (release func(), err error) {
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
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	times := filepath.Join(dir, stopTimeFile)
	if err == nil {
		err = os.WriteFile(times, []byte(stopTime.String()+"\n"), 0o600)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("claim the data folder: %w", err)
	}
	return func() {
		_ = os.Remove(times)
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

// StopTime is how long the process that runs the cluster in dir may take to stop: as it said to Hold, or 20 seconds when it said nothing.
func StopTime(dir string) time.Duration {
	const otherwise = 20 * time.Second
	text, err := os.ReadFile(filepath.Join(dir, stopTimeFile))
	if err != nil {
		return otherwise
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil || d <= 0 {
		return otherwise
	}
	return d
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

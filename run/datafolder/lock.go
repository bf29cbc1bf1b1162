package datafolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pidFile has the process ID of the server of a data folder. The server holds a lock on the file for as long as it
// lives, and the kernel tells who holds the lock: an ID that a killed process has left, and that may be another
// program's by now, is not mistaken for the server.
const pidFile = "server.pid"

// stopTimeFile says how long the server may take to stop. It is a file of its own, so that pidFile has only one number,
// as scripts expect.
const stopTimeFile = "server.stop-time"

// Lock makes this process the server of the data folder dir. It fails if another process is, and changes nothing if a
// newer program has written the folder. Then the folder has the version mark of this program. release unlocks the
// folder; the kernel does so too when the process ends. Other processes read stopTime by StopTime.
func Lock(dir string, stopTime time.Duration) (release func(), err error) {
	if err := CheckVersion(dir); err != nil {
		return nil, err
	}
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
	if err == nil {
		err = markVersion(dir)
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

// LockHolder returns the process ID of the server of the data folder dir; zero if there is none. It is for other
// processes: the kernel does not show a process its own lock, and drops it when that process closes the file.
func LockHolder(dir string) (pid int, err error) {
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

// LockTime returns when the server of the data folder dir has locked it, or the last one did; zero if none has.
func LockTime(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, pidFile))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// StopTime returns how long the server of the data folder dir may take to stop: the time given to Lock, or 20 seconds
// if it is unknown.
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

// locker returns the process that has locked a file; zero if there is none.
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

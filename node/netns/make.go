package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Make creates a network namespace and bind-mounts it on a file, so that it stays when no process is in it. An existing
// one stays. A file that is left from an earlier boot, with nothing mounted on it, gets a new one.
func Make(path string) error {
	if Is(path) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	_ = f.Close()
	done := make(chan error, 1)
	go func() { done <- createNamespace(path) }()
	return <-done
}

// createNamespace creates the namespace on a thread that returns to its own namespace afterwards.
func createNamespace(path string) error {
	runtime.LockOSThread() // for ever if that fails: the thread then ends with its goroutine
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the network namespace of this process: %w", err)
	}
	defer func() { _ = here.Close() }()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		err = fmt.Errorf("keep the network namespace as %s: %w", path, err)
	}
	if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// Is reports whether a network namespace is mounted on a file.
func Is(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return false
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	return err == nil && kind == unix.CLONE_NEWNET
}

// Remove removes what Make made. The namespace itself ends with the last process in it.
func Remove(path string) error {
	for Is(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("remove the network namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the network namespace %s: %w", path, err)
	}
	return nil
}

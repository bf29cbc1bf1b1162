package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A killed process leaves its cgroup when the kernel is done with it, which is soon but not at once.
const (
	maxTries  = 200
	killPause = 10 * time.Millisecond
)

// killAndRemove kills every process in a cgroup and the cgroups below it, and removes their folders.
func killAndRemove(dir string) error {
	var last error
	for try := range maxTries {
		if try > 0 {
			time.Sleep(killPause)
		}
		if last = rmdirs(dir); last == nil {
			return nil
		}
		if !errors.Is(last, syscall.EBUSY) && !errors.Is(last, syscall.ENOTEMPTY) {
			break
		}
		if err := kill(dir); err != nil {
			last = err
		}
	}
	return fmt.Errorf("remove the group %s: %w", dir, last)
}

// rmdirs removes the folder of a cgroup from the bottom up. A folder that does not exist counts as removed.
func rmdirs(dir string) error {
	err := syscall.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		if errors.Is(readErr, fs.ErrNotExist) {
			return nil
		}
		return readErr
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := rmdirs(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err = syscall.Rmdir(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kill kills every process in a cgroup and in those below it.
func kill(dir string) error {
	if err := writeFile(filepath.Join(dir, "cgroup.kill"), "1"); err == nil {
		return nil // with version 2 the kernel does it, and no process can escape by forking
	}
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.IsDir() || d.Name() != "cgroup.procs" {
			return nil
		}
		for _, pid := range pids(at) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of group %s: %w", pid, dir, err)
			}
		}
		return nil
	})
}

// pids reads cgroup.procs. Processes of other PID namespaces show as 0 and cannot be killed; process 1 and this one are
// in no Pod's cgroup.
func pids(file string) (out []int) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 1 && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

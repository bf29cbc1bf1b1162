package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ForAgent returns the cgroup of the process of an agent, and ForRuntime that of its container runtime. Both are beside the cgroup of its
// Pods, which is named root.
func ForAgent(root string) string   { return root + "-agent" }
func ForRuntime(root string) string { return root + "-runtime" }

// Confine moves a process into a cgroup, which is made if it does not exist, and limits the memory of all processes in it; 0 sets no
// limit. What the process uses already counts for the cgroup in which it was.
func (h Host) Confine(group string, pid int, memory int64) error {
	dir, limit := h.dir("memory", group), "memory.limit_in_bytes"
	if h.Version == 2 {
		limit = "memory.max"
		if err := writeFile(filepath.Join(h.Unified, "cgroup.subtree_control"), "+memory"); err != nil {
			return fmt.Errorf("let groups limit memory: %w", err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // G301: as all groups of the kernel
		return fmt.Errorf("make a group: %w", err)
	}
	if memory > 0 {
		if err := writeFile(filepath.Join(dir, limit), strconv.FormatInt(memory, 10)); err != nil {
			return fmt.Errorf("limit the memory of a group: %w", err)
		}
	}
	if err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move process %d into its group: %w", pid, err)
	}
	return nil
}

// RemoveConfined removes the cgroups of an agent and of its runtime, in which no process is left.
func RemoveConfined(root string) error {
	h, err := FindHost()
	if err != nil {
		return nil //nolint:nilerr // there are no cgroups
	}
	var errs []error
	for _, group := range []string{ForAgent(root), ForRuntime(root)} {
		err := os.Remove(h.dir("memory", group))
		for try := 0; errors.Is(err, syscall.EBUSY) && try < 50; try++ { // the kernel may need a moment to see that it is empty
			time.Sleep(5 * time.Millisecond)
			err = os.Remove(h.dir("memory", group))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

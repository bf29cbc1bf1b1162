package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"proa.dev/node/volume/mounts"
)

// hierarchies returns the mount points of all cgroup hierarchies: one with version 2, one for each controller with
// version 1.
func hierarchies() ([]string, error) {
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range table {
		if (m.Type == "cgroup" || m.Type == "cgroup2") && !slices.Contains(out, m.Point) {
			out = append(out, m.Point)
		}
	}
	return out, nil
}

// cgroupsOf returns the cgroups of a hierarchy that belong to one of the containers, whose ids are part of the names of
// their cgroups.
func cgroupsOf(root string, ids []string) (out []string) {
	if len(ids) == 0 {
		return nil
	}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		// A cgroup that was removed meanwhile has an error.
		if err == nil && d.IsDir() && slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(d.Name(), id) }) {
			out = append(out, path)
			return fs.SkipDir
		}
		return nil
	})
	return out
}

// killCgroup kills every process in a cgroup and below it. Processes may fork meanwhile, so it is repeated until none
// is left, a limited number of times.
func killCgroup(dir string) {
	for range 100 {
		pids := processesIn(dir)
		if len(pids) == 0 {
			return
		}
		if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) != nil {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func processesIn(dir string) (out []int) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		// A cgroup that was removed meanwhile has an error.
		if err == nil && d.IsDir() {
			data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, word := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
					out = append(out, pid)
				}
			}
		}
		return nil
	})
	return out
}

// removeCgroup removes a cgroup with those below it, the deepest first. Only empty ones can be removed, and the kernel
// may need a moment to see that they are.
func removeCgroup(dir string) error {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	var failed error
	for _, path := range slices.Backward(all) {
		err := os.Remove(path)
		for try := 0; errors.Is(err, syscall.EBUSY) && try < 50; try++ {
			time.Sleep(5 * time.Millisecond)
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

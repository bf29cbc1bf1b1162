package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"proa.dev/node/volume/mounts"
)

// Purge ends containerd and all its containers, and removes what they leave behind: processes, mounts, cgroups, files.
// It works whether or not containerd runs, but not while another process runs the runtime.
func Purge(ctx context.Context, c Config, log *slog.Logger) error {
	c = c.withDefaults()
	l := newLayout(c.DataDir)
	if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lockFolder(l)
	if err != nil {
		return err
	}
	defer lock.Close()
	if p, err := findContainerd(l); err != nil {
		return err
	} else if p != nil {
		defer p.Release()
		if err := p.terminate(ctx); err != nil {
			return err
		}
	}
	ids := containerIDs(l)
	log.Info("removing every container", "containers", len(ids), "folder", l.dir)
	wrong, err := endProcesses(ctx, c, l, ids)
	if err != nil {
		// What is still mounted may hold files of a user: nothing is removed then.
		return errors.Join(wrong, err)
	}
	return errors.Join(wrong, removeFiles(l, ids))
}

// EndSandboxes ends the sandboxes that a stopped containerd has left, with their shims and mounts, as a reboot of the
// machine does. What containers have written stays, and a containerd that is started again finds the sandboxes ended.
func EndSandboxes(ctx context.Context, c Config) error {
	c = c.withDefaults()
	l := newLayout(c.DataDir)
	lock, err := lockFolder(l)
	if err != nil {
		return err
	}
	defer lock.Close()
	wrong, err := endProcesses(ctx, c, l, containerIDs(l))
	return errors.Join(wrong, err)
}

// endProcesses kills containers, sandboxes and shims, and unmounts what is mounted below the folders of the runtime. wrong
// is about processes and cgroups, err about mounts.
func endProcesses(ctx context.Context, c Config, l layout, ids []string) (wrong, err error) {
	wrong = endContainers(ctx, l, c.CgroupRoot, ids)
	for _, dir := range []string{l.dir, l.run} {
		if err := unmountBelow(dir); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

// containerIDs returns the containers and sandboxes that have, or had, a shim.
func containerIDs(l layout) (out []string) {
	for _, dir := range []string{l.state, l.root} {
		found, _ := filepath.Glob(filepath.Join(dir, "io.containerd.runtime.v2.task", "*", "*"))
		for _, f := range found {
			// Ids are long; a short name could be part of the name of an unrelated cgroup.
			if id := filepath.Base(f); len(id) >= 32 && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// endContainers kills what is in the cgroups of the containers, then the shims, and removes the cgroups.
func endContainers(ctx context.Context, l layout, top string, ids []string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var groups []string
	for _, root := range roots {
		groups = append(groups, cgroupsOf(root, ids)...)
		if own := filepath.Join(root, filepath.Join("/", top)); own != root && isFolder(own) {
			groups = append(groups, own)
		}
	}
	for _, dir := range groups {
		killCgroup(dir)
	}
	if err := endShims(ctx, l); err != nil {
		return err
	}
	var wrong error
	for _, dir := range groups {
		wrong = errors.Join(wrong, removeCgroup(dir))
	}
	return wrong
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// endShims kills the shims of this containerd, which they name in their arguments, with their children.
func endShims(ctx context.Context, l layout) error {
	shims, err := processes(func(args []string) bool {
		at := slices.Index(args, "-address")
		return len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && at >= 0 && at+1 < len(args) &&
			args[at+1] == l.socket
	})
	if err != nil {
		return err
	}
	for _, p := range shims {
		for _, child := range childrenOf(p.Pid) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		if err := p.Kill(); err != nil {
			return err
		}
	}
	for _, p := range shims {
		select {
		case <-p.Done:
		case <-time.After(killAfter):
			err = errors.Join(err, fmt.Errorf("shim %d does not end", p.Pid))
		case <-ctx.Done():
			err = errors.Join(err, ctx.Err())
		}
		p.Release()
	}
	return err
}

// childrenOf returns the child processes of a shim.
func childrenOf(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		data, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(data)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil && child > 1 {
				out = append(out, child)
			}
		}
	}
	return out
}

// removeFiles removes what the runtime made. Other files of its folder, such as registry settings, stay.
func removeFiles(l layout, ids []string) error {
	var wrong error
	for _, path := range []string{l.state, l.root, l.shims, l.socket, l.socket + ".ttrpc", l.log, l.log + ".1", l.boot, l.network} {
		wrong = errors.Join(wrong, mounts.Remove(path))
	}
	l.removeOldConfigs("")
	for _, id := range ids {
		// The CNI library caches the results of network plugins here.
		results, _ := filepath.Glob("/var/lib/cni/results/*-" + id + "-*")
		for _, f := range results {
			_ = os.Remove(f)
		}
	}
	wrong = errors.Join(wrong, os.Remove(l.lock))
	if l.run != l.dir {
		wrong = errors.Join(wrong, mounts.Remove(l.run)) // with the sockets of agents that were killed
		_ = os.Remove(shortRun)                          // succeeds only if this was the last
	}
	_ = os.Remove(l.dir) // succeeds only if nothing else is in it
	return wrong
}

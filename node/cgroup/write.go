package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// controllers are the controllers by which Pods are limited. With version 1 the runtime makes the folders of the others.
var controllers = []struct {
	name string
	must bool
}{{"cpu", true}, {"memory", true}, {"pids", true}, {"cpuacct", false}, {"hugetlb", false}, {"cpuset", false}, {"io", false}}

// make creates a cgroup, if it does not exist, and sets its limits.
func (t *Tree) make(n name, l Limits) error {
	if t.Driver == Systemd && t.Units != nil {
		if err := t.Units.Slice(n.unit(), t.Host.properties(l)); err != nil {
			return fmt.Errorf("make the slice %s: %w", n.unit(), err)
		}
	}
	var err error
	if t.Host.Version == 2 {
		err = t.makeUnified(n)
	} else {
		err = t.makeLegacy(n)
	}
	if err != nil {
		return err
	}
	return t.write(n, l)
}

// set sets the limits of an existing cgroup.
func (t *Tree) set(n name, l Limits) error {
	if t.Driver == Systemd && t.Units != nil {
		if err := t.Units.Slice(n.unit(), t.Host.properties(l)); err != nil {
			return fmt.Errorf("set the limits of the slice %s: %w", n.unit(), err)
		}
	}
	return t.write(n, l)
}

// makeLegacy makes the folders of version 1. Those of cpuset are left to the runtime, which must initialize them before
// they can be used.
func (t *Tree) makeLegacy(n name) error {
	for _, c := range controllers {
		dir := t.Host.dir(c.name, n.path(t.Driver))
		if dir == "" || c.name == "cpuset" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: as all groups of the kernel
			return fmt.Errorf("make a group: %w", err)
		}
	}
	return nil
}

// makeUnified makes the folder of version 2, and enables the controllers in the cgroups above it.
func (t *Tree) makeUnified(n name) error {
	for i := range n {
		above := filepath.Join(t.Host.Unified, n[:i].path(t.Driver))
		for _, c := range controllers {
			if t.Host.Mounts[c.name] == "" {
				continue
			}
			err := t.writeFile(filepath.Join(above, "cgroup.subtree_control"), "+"+c.name)
			if err != nil && c.must {
				return fmt.Errorf("let groups below %s use the %q controller (no process may be in %s itself): %w", above, c.name, above, err)
			}
		}
		if err := os.Mkdir(filepath.Join(t.Host.Unified, n[:i+1].path(t.Driver)), 0o755); err != nil && //nolint:gosec // G301: a cgroup
			!errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make a group: %w", err)
		}
	}
	return nil
}

// limit sets limits of a cgroup of the system, and leaves alone what is not limited.
func (t *Tree) limit(n name, l Limits) error {
	if t.Driver == Systemd && t.Units != nil {
		given := slices.DeleteFunc(t.Host.properties(l),
			func(p string) bool { return strings.HasSuffix(p, "=") || strings.HasSuffix(p, "=infinity") })
		return t.Units.Slice(n.unit(), given)
	}
	return t.writeFiles(n, slices.DeleteFunc(t.Host.files(l),
		func(f file) bool { return f.value == "-1" || strings.HasPrefix(f.value, "max") }))
}

// write writes limits to files. A limit that cannot be set is an error: nothing may run with fewer limits than it was
// given.
func (t *Tree) write(n name, l Limits) error { return t.writeFiles(n, t.Host.files(l)) }

func (t *Tree) writeFiles(n name, files []file) error {
	for _, f := range files {
		dir := t.Host.dir(f.controller, n.path(t.Driver))
		if dir == "" {
			continue
		}
		err := t.writeFile(filepath.Join(dir, f.name), f.value)
		if err != nil && !(f.optional &&
			(errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission))) {
			return fmt.Errorf("set %s to %s: %w", filepath.Join(dir, f.name), f.value, err)
		}
	}
	return nil
}

// writeFile writes to an existing file of the kernel.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// remove kills what is in a cgroup and removes it under every mount.
func (t *Tree) remove(n name, d Driver) error {
	group := n.path(d)
	if group == "/" {
		return errors.New("refuse to remove the group of the whole machine")
	}
	if _, err := os.Stat(t.Host.dir("cpu", group)); d == Systemd && t.Units != nil && err == nil {
		if err := t.Units.Stop(n.unit()); err != nil {
			t.Log.Debug("a slice did not stop", "slice", n.unit(), "err", err)
		}
	}
	var errs []error
	for _, dir := range t.Host.dirs(group) {
		errs = append(errs, killAndRemove(dir))
	}
	return errors.Join(errs...)
}

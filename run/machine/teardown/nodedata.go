package teardown

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// DataOfUnwanted returns the data that is lost with the further nodes that exist and that the config does not ask for.
// Nodes without data are left out. A config without a number of nodes keeps all.
func DataOfUnwanted(c *settings.Config) (out []NodeData, err error) {
	nodes, err := nodefolder.Unwanted(c)
	for _, f := range nodes {
		d, e := DataOf(f)
		err = errors.Join(err, e)
		if !d.IsEmpty() {
			out = append(out, d)
		}
	}
	return out, err
}

// AllowDataRemoval lets the server remove the nodes that the config does not ask for, with their data.
func AllowDataRemoval(c *settings.Config) error {
	nodes, err := nodefolder.Unwanted(c)
	for _, f := range nodes {
		err = errors.Join(err, os.WriteFile(f.RemovalFile(), nil, 0o600))
	}
	return err
}

// ForbidDataRemoval takes the permission of AllowDataRemoval back for the nodes that the config asks for: it was given for another
// number of nodes.
func ForbidDataRemoval(c *settings.Config) (err error) {
	for _, f := range nodefolder.Wanted(c) {
		if e := os.Remove(f.RemovalFile()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// DataOf returns the data of Pods that a node keeps.
func DataOf(f nodefolder.Node) (NodeData, error) {
	d := NodeData{Node: f.Name}
	dir := nodefolder.AgentDir(f.Dir)
	volumes, err := os.ReadDir(filepath.Join(dir, "local-path"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, fmt.Errorf("see what node %s keeps: %w", f.Name, err)
	}
	for _, v := range volumes {
		d.Volumes = append(d.Volumes, v.Name())
	}
	folders, err := filepath.Glob(filepath.Join(dir, "pods", "*", "volumes", "kubernetes.io~empty-dir", "*"))
	if err != nil {
		return d, err
	}
	names := podNames(filepath.Join(dir, "logs", "pods"))
	for _, folder := range folders {
		content, err := os.ReadDir(folder)
		if err != nil || len(content) == 0 {
			continue // it was removed with its Pod, or is empty
		}
		uid := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(folder))))
		pod := names[uid]
		if pod == "" {
			pod = "Pod " + uid
		}
		d.EmptyDirs = append(d.EmptyDirs, pod+": "+filepath.Base(folder))
	}
	slices.Sort(d.EmptyDirs)
	return d, nil
}

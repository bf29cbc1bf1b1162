package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"proa.dev/run"
)

// NodeData is what is lost when a node of this machine is removed.
type NodeData struct {
	Node string
	// Volumes are the names of the PersistentVolumes whose folders are on the node.
	Volumes []string
	// EmptyDirs are the emptyDir volumes that are not empty, as "namespace/pod: volume".
	EmptyDirs []string
}

// IsEmpty says that nothing is lost.
func (d NodeData) IsEmpty() bool { return len(d.Volumes)+len(d.EmptyDirs) == 0 }

// DataOfUnwanted says what is lost with the further nodes that a data folder has and the config no longer wants. Nodes without data are
// left out. A config that says no number of nodes keeps all.
func DataOfUnwanted(c *run.Config) (out []NodeData, err error) {
	nodes, err := unwanted(c)
	for _, f := range nodes {
		d, e := f.data()
		err = errors.Join(err, e)
		if !d.IsEmpty() {
			out = append(out, d)
		}
	}
	return out, err
}

// AllowDataRemoval lets the server remove the nodes that the config no longer wants with all that they keep.
func AllowDataRemoval(c *run.Config) error {
	nodes, err := unwanted(c)
	for _, f := range nodes {
		err = errors.Join(err, os.WriteFile(f.removalFile(), nil, 0o600))
	}
	return err
}

// unwanted are the further nodes that are there and that the config does not want.
func unwanted(c *run.Config) ([]further, error) {
	if c.Nodes == 0 {
		return nil, nil
	}
	have, err := existing(c.DataDir)
	want := wanted(c)
	return slices.DeleteFunc(have, func(f further) bool { return slices.Contains(want, f) }), err
}

// removalFile is there when the user has agreed that the data of the node is removed.
func (f further) removalFile() string { return filepath.Join(f.dir, "remove-data") }

// data finds what the node keeps for Pods.
func (f further) data() (NodeData, error) {
	d := NodeData{Node: f.name}
	dir := nodeDir(f.dir)
	volumes, err := os.ReadDir(filepath.Join(dir, "local-path"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, fmt.Errorf("see what node %s keeps: %w", f.name, err)
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
			continue // it went away with its Pod, or holds nothing
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

// podNames are the names of the Pods of a node by their UIDs, as the folders of their logs tell: NAMESPACE_NAME_UID.
func podNames(logs string) map[string]string {
	out := map[string]string{}
	entries, _ := os.ReadDir(logs) // without logs there are no names
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			out[parts[2]] = parts[0] + "/" + parts[1]
		}
	}
	return out
}

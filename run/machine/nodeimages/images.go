// Package nodeimages loads, pulls, lists and removes images on the nodes of this machine.
package nodeimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/node/cri"
	"proa.dev/node/image"
	"proa.dev/node/runtime"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
)

// LoadImages loads an archive of images into every node of a data folder. If the cluster does not run, the archive is
// kept for its next start, and kept is its path.
func LoadImages(ctx context.Context, dataDir, file string) (names []string, kept string, err error) {
	pid, err := datafolder.LockHolder(dataDir)
	if err != nil {
		return nil, "", err
	}
	dirs, nodes, err := nodefolder.DataDirs(dataDir)
	if err != nil {
		return nil, "", err
	}
	for i, dir := range dirs {
		if pid == 0 {
			at, err := keepArchive(dir, file)
			if err != nil {
				return nil, "", err
			}
			kept = cmp.Or(kept, at)
			continue
		}
		if names, err = loadInto(ctx, dir, file); err != nil {
			return nil, "", fmt.Errorf("load %s%s: %w", file, onNode(nodes[i]), err)
		}
	}
	return names, kept, nil
}

func onNode(name string) string {
	if name == "" {
		return ""
	}
	return " on node " + name
}

// loadInto loads an archive into one node.
func loadInto(ctx context.Context, dataDir, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := WaitForRuntime(ctx, dataDir); err != nil {
		return nil, err
	}
	return runtime.ImportImages(ctx, runtime.Socket(nodefolder.RuntimeDir(dataDir)), f)
}

// WaitForRuntime waits for the container runtime of a node that is about to start.
func WaitForRuntime(ctx context.Context, dataDir string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		_, err := runtime.ListImages(ctx, runtime.Socket(nodefolder.RuntimeDir(dataDir)))
		if err == nil {
			return nil
		}
		if wait.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the cluster in %s has no node that runs containers: %w", dataDir, err)
		}
	}
}

// keepArchive copies an archive into the folder of those that are loaded when the node starts.
func keepArchive(dataDir, file string) (string, error) {
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer from.Close()
	dir := nodefolder.ImageDir(dataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(from.Name()))
	to, err := os.CreateTemp(dir, ".part-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return "", fmt.Errorf("keep %s: %w", from.Name(), err)
	}
	return path, nil
}

// NodeImages has the images of one node.
type NodeImages struct {
	Node   string          `json:"node,omitempty"` // empty where there is but one
	Images []runtime.Image `json:"images"`
}

// ListImages returns the images of the nodes of a data folder.
func ListImages(ctx context.Context, dataDir string) (out []NodeImages, err error) {
	dirs, names, err := runningFolders(dataDir)
	if err != nil {
		return nil, err
	}
	for i, dir := range dirs {
		images, err := runtime.ListImages(ctx, runtime.Socket(nodefolder.RuntimeDir(dir)))
		if err != nil {
			return nil, fmt.Errorf("list the images%s: %w", onNode(names[i]), err)
		}
		out = append(out, NodeImages{names[i], images})
	}
	if len(out) > 1 {
		out[0].Node = names[1][:strings.LastIndexByte(names[1], '-')]
	}
	return out, nil
}

// runningFolders returns the data folders of the nodes of a cluster that runs; see nodefolder.DataDirs.
func runningFolders(dataDir string) (dirs, names []string, err error) {
	if pid, err := datafolder.LockHolder(dataDir); err != nil || pid == 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("the cluster in %s is not running; start it with \"proa up\"", dataDir))
	}
	return nodefolder.DataDirs(dataDir)
}

// PullImage pulls an image on every node of a cluster that runs.
func PullImage(ctx context.Context, dataDir, name string) error {
	return eachRuntime(ctx, dataDir, func(images image.Runtime) error {
		if _, err := images.Pull(ctx, &cri.ImageSpec{Image: name}, nil, nil); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
		return nil
	})
}

// RemoveImage removes an image with all its names from every node of a cluster that runs, and returns from how many.
// Running containers of it go on.
func RemoveImage(ctx context.Context, dataDir, name string) (nodes int, err error) {
	err = eachRuntime(ctx, dataDir, func(images image.Runtime) error {
		found, err := images.Status(ctx, &cri.ImageSpec{Image: name})
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if found == nil {
			return nil
		}
		if err := images.Remove(ctx, name); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		nodes++
		return nil
	})
	if err == nil && nodes == 0 {
		err = fmt.Errorf("no node has an image %s; \"proa images list\" shows those they have", name)
	}
	return nodes, err
}

// eachRuntime calls do for the runtime of every node of a cluster that runs, one after the other, until one fails.
func eachRuntime(ctx context.Context, dataDir string, do func(image.Runtime) error) error {
	dirs, names, err := runningFolders(dataDir)
	if err != nil {
		return err
	}
	one := func(dir string) error {
		if err := WaitForRuntime(ctx, dir); err != nil {
			return err
		}
		client, err := cri.Dial(runtime.Socket(nodefolder.RuntimeDir(dir)))
		if err != nil {
			return err
		}
		defer client.Close()
		return do(image.OfCRI(client))
	}
	for i, dir := range dirs {
		if err := one(dir); err != nil {
			return fmt.Errorf("%w%s", err, onNode(names[i]))
		}
	}
	return nil
}

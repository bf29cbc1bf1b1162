package machine

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

	"proa.dev/node/cri"
	"proa.dev/node/image"
	"proa.dev/node/runtime"
	"proa.dev/run"
)

// nodeDir is the folder of the node agent in a data folder.
func nodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

// runtimeDir is the folder of its container runtime.
func runtimeDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "containerd") }

// imageDir has archives that are loaded when the node starts.
func imageDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "images") }

// folders are those of the nodes of a data folder, the first one first, by the names of the further ones.
func folders(dataDir string) (dirs, names []string, err error) {
	all, err := existing(dataDir)
	dirs, names = []string{dataDir}, []string{""}
	for _, f := range all {
		dirs, names = append(dirs, f.dir), append(names, f.name)
	}
	return dirs, names, err
}

// LoadImages brings an archive of images to every node of a data folder. If the cluster does not run, the archive is kept for
// its next start, and kept says where.
func LoadImages(ctx context.Context, dataDir, file string) (names []string, kept string, err error) {
	pid, err := run.Holder(dataDir)
	if err != nil {
		return nil, "", err
	}
	dirs, nodes, err := folders(dataDir)
	if err != nil {
		return nil, "", err
	}
	for i, dir := range dirs {
		if pid == 0 {
			at, err := keep(dir, file)
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

// loadInto brings an archive to one node.
func loadInto(ctx context.Context, dataDir, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := answers(ctx, dataDir); err != nil {
		return nil, err
	}
	return runtime.Import(ctx, runtime.Socket(runtimeDir(dataDir)), f)
}

// answers waits for the runtime of a node that is about to start.
func answers(ctx context.Context, dataDir string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		_, err := runtime.List(ctx, runtime.Socket(runtimeDir(dataDir)))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster in %s has no node that runs containers: %w", dataDir, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// keep copies an archive into the folder of those that are loaded at the start.
func keep(dataDir, file string) (string, error) {
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer from.Close()
	dir := imageDir(dataDir)
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

// shareArchives gives a new node the archives that were kept for the first one.
func shareArchives(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil // it is not new
	}
	files, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil || len(files) == 0 {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Link(f, filepath.Join(to, filepath.Base(f))); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("share the images of the first node: %w", err)
		}
	}
	return nil
}

// shareImages brings what was loaded into the first node to another one, which may be new. It is tried until it is done.
func (s *Machine) shareImages(ctx context.Context, f further) {
	for s.Node.Runtime == "" { // of another's runtime we keep no images
		err := answers(ctx, s.DataDir)
		if err == nil {
			err = answers(ctx, f.dir)
		}
		if err == nil {
			_, err = runtime.Share(ctx, runtimeDir(s.DataDir), runtimeDir(f.dir))
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		s.Log().ErrorContext(ctx, "a node lacks images that were loaded before it came; it is tried again", "node", f.name, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

// NodeImages are the images of one node.
type NodeImages struct {
	Node   string          `json:"node,omitempty"` // empty where there is but one
	Images []runtime.Image `json:"images"`
}

// ListImages are the images of the nodes of a data folder.
func ListImages(ctx context.Context, dataDir string) (out []NodeImages, err error) {
	dirs, names, err := runningFolders(dataDir)
	if err != nil {
		return nil, err
	}
	for i, dir := range dirs {
		images, err := runtime.List(ctx, runtime.Socket(runtimeDir(dir)))
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

// runningFolders are the folders of the nodes of a cluster that runs; see folders.
func runningFolders(dataDir string) (dirs, names []string, err error) {
	if pid, err := run.Holder(dataDir); err != nil || pid == 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("the cluster in %s is not running; start it with \"proa up\"", dataDir))
	}
	return folders(dataDir)
}

// PullImage brings an image from its registry to every node of a cluster that runs.
func PullImage(ctx context.Context, dataDir, name string) error {
	return eachRuntime(ctx, dataDir, func(images image.Runtime) error {
		if _, err := images.Pull(ctx, &cri.ImageSpec{Image: name}, nil, nil); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
		return nil
	})
}

// RemoveImage removes an image with all its names from every node of a cluster that runs, and says from how many. Containers that run of it go
// on.
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

// eachRuntime calls do with the images of every node of a cluster that runs, one after the other, until it fails.
func eachRuntime(ctx context.Context, dataDir string, do func(image.Runtime) error) error {
	dirs, names, err := runningFolders(dataDir)
	if err != nil {
		return err
	}
	one := func(dir string) error {
		if err := answers(ctx, dir); err != nil {
			return err
		}
		client, err := cri.Dial(runtime.Socket(runtimeDir(dir)))
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

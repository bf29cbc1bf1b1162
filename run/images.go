package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"proa.dev/node/runtime"
)

// nodeDir is the folder of the node agent in a data folder.
func nodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

// runtimeDir is the folder of its container runtime.
func runtimeDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "containerd") }

// imageDir has archives that are loaded when the node starts.
func imageDir(dataDir string) string { return filepath.Join(nodeDir(dataDir), "images") }

// LoadImages brings an archive of images to the node of a data folder. If the node does not run, the archive is kept for its
// next start, and kept says where.
func LoadImages(ctx context.Context, dataDir, file string) (names []string, kept string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if pid, err := Holder(dataDir); err != nil || pid == 0 {
		if err != nil {
			return nil, "", err
		}
		kept, err = keep(dataDir, f)
		return nil, kept, err
	}
	if err := answers(ctx, dataDir); err != nil {
		return nil, "", err
	}
	names, err = runtime.Import(ctx, runtime.Socket(runtimeDir(dataDir)), f)
	if err != nil {
		return nil, "", fmt.Errorf("load %s: %w", file, err)
	}
	return names, "", nil
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
func keep(dataDir string, from *os.File) (string, error) {
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

// ListImages are the images of the node of a data folder.
func ListImages(ctx context.Context, dataDir string) ([]runtime.Image, error) {
	if pid, err := Holder(dataDir); err != nil || pid == 0 {
		return nil, errors.Join(err, fmt.Errorf("the cluster in %s is not running; start it with \"proa up\"", dataDir))
	}
	return runtime.List(ctx, runtime.Socket(runtimeDir(dataDir)))
}

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"proa.dev/node/runtime"
	"proa.dev/run"
)

// runtimeFile remembers how the runtime of a node was set up, for those who end it.
func runtimeFile(dataDir string) string { return filepath.Join(nodeDir(dataDir), "runtime.json") }

func keepRuntime(dataDir string, c runtime.Config) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(nodeDir(dataDir), 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	return os.WriteFile(runtimeFile(dataDir), text, 0o600)
}

// dropMovedRuntime removes what a container runtime has kept in another place: a data folder that was moved, or restored at another path, has
// records of containers, logs and mounts with the paths of the original, which must not be touched. Pods get new containers; their
// volumes are not the runtime's.
func dropMovedRuntime(ctx context.Context, dataDir string, now runtime.Config, log *slog.Logger) error {
	var kept runtime.Config
	text, err := os.ReadFile(runtimeFile(dataDir))
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil || kept.DataDir == now.DataDir || sameFolder(kept.DataDir, now.DataDir) {
		return nil //nolint:nilerr // one that has never run here, or is written anew
	}
	log.WarnContext(ctx, "the data folder was moved or restored here: its containers and images are dropped, and Pods begin anew with their volumes", "from", kept.DataDir, "to", now.DataDir)
	// The network of its sandboxes is theirs, too.
	if err := errors.Join(runtime.Discard(now), os.RemoveAll(filepath.Join(nodeDir(dataDir), "network"))); err != nil {
		return fmt.Errorf("remove what the container runtime kept in another place: %w", err)
	}
	return nil
}

// sameFolder tells whether two paths lead to one folder, as where the user goes through a symbolic link: its containers may still run.
func sameFolder(a, b string) bool {
	ia, ea := os.Stat(a)
	ib, eb := os.Stat(b)
	return ea == nil && eb == nil && os.SameFile(ia, ib)
}

// keptRuntime is how the runtime of a node was set up when it last ran.
func keptRuntime(dataDir string) (c runtime.Config, err error) {
	text, err := os.ReadFile(runtimeFile(dataDir))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.DataDir == runtimeDir(dataDir) {
		return c, nil
	}
	bin, err := binDir(&run.NodeConfig{}, dataDir)
	return ownRuntime(dataDir, bin, run.NodeConfig{}), err
}

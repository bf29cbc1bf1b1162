package nodefolder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"proa.dev/node/cgroup"
	"proa.dev/node/runtime"
	"proa.dev/run/datafolder"
	"proa.dev/run/settings"
)

// RuntimeConfig returns the configuration of the node's own container runtime.
func RuntimeConfig(dataDir, bin string, n settings.NodeConfig) runtime.Config {
	return runtime.Config{
		DataDir: RuntimeDir(dataDir), BinDir: bin, CNIBinDirs: append([]string{bin, "/opt/cni/bin"}, n.CNIBins...),
		CNIConfDir: cmp.Or(n.CNIConf, CNIDir(dataDir)), CgroupRoot: cgroup.RootFor(AgentDir(dataDir)),
		Place:         func(pid int) error { return placeRuntime(dataDir, pid) },
		SystemdCgroup: n.CgroupDriver == string(cgroup.Systemd), RegistryDirs: n.RegistryDirs,
	}
}

// placeRuntime moves a container runtime into the cgroup of the runtime of a data folder.
func placeRuntime(dataDir string, pid int) error {
	host, err := cgroup.FindHost()
	if err != nil {
		return err
	}
	return host.Confine(cgroup.ForRuntime(cgroup.RootFor(AgentDir(dataDir))), pid, 0)
}

// StoredRuntimeConfig returns the configuration with which the runtime of a node last ran.
func StoredRuntimeConfig(dataDir string) (c runtime.Config, err error) {
	text, err := os.ReadFile(runtimeFile(dataDir))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.DataDir == RuntimeDir(dataDir) {
		return c, nil
	}
	bin, err := BinDir(&settings.NodeConfig{}, dataDir)
	return RuntimeConfig(dataDir, bin, settings.NodeConfig{}), err
}

// StoreRuntimeConfig stores the configuration of a node's runtime.
func StoreRuntimeConfig(dataDir string, c runtime.Config) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(AgentDir(dataDir), 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	return os.WriteFile(runtimeFile(dataDir), text, 0o600)
}

// StoreServerSettings stores the settings of a server that runs nodes, and removes those of a former one from a server that runs none.
func StoreServerSettings(c *settings.Config) error {
	file := ServerSettingsFile(c.DataDir)
	if c.Node.Name == "" {
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := c.FormatGiven()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(AgentDir(c.DataDir), 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	// A full disk must not leave an empty file, which would say that there is no node.
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// BinDir returns the folder of containerd and its companions.
func BinDir(n *settings.NodeConfig, dataDir string) (string, error) {
	if n.BinDir != "" {
		return n.BinDir, nil
	}
	return datafolder.Programs(dataDir)
}

// DropMovedRuntime removes the state of a container runtime that ran at another path. A data folder that was moved, or
// restored at another path, has records of containers, logs and mounts with the original paths, which must not be
// touched. Pods get new containers; their volumes are not part of the runtime's state.
func DropMovedRuntime(ctx context.Context, dataDir string, now runtime.Config, log *slog.Logger) error {
	var kept runtime.Config
	text, err := os.ReadFile(runtimeFile(dataDir))
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil || kept.DataDir == now.DataDir || sameFolder(kept.DataDir, now.DataDir) {
		return nil //nolint:nilerr // one that has never run here, or is written anew
	}
	log.WarnContext(ctx, "the data folder was moved or restored here: its containers and images are dropped, and Pods get new containers with their volumes", "from", kept.DataDir, "to", now.DataDir)
	// The stored addresses of its sandboxes belong to the original too.
	if err := errors.Join(runtime.Discard(now), os.RemoveAll(filepath.Join(AgentDir(dataDir), "network"))); err != nil {
		return fmt.Errorf("remove what the container runtime kept in another place: %w", err)
	}
	return nil
}

// sameFolder tells whether two paths lead to the same folder, for example through a symbolic link; its containers may
// still run.
func sameFolder(a, b string) bool {
	ia, ea := os.Stat(a)
	ib, eb := os.Stat(b)
	return ea == nil && eb == nil && os.SameFile(ia, ib)
}

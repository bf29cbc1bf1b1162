package nodefolder

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"proa.dev/node/runtime"
	"proa.dev/run/settings"
)

// TestRestoredDataFolderDropsContainers checks that a data folder at another path drops the state of its container
// runtime.
func TestRestoredDataFolderDropsContainers(t *testing.T) {
	original, restored := t.TempDir(), t.TempDir()
	write := func(dir, name string) string {
		t.Helper()
		path := filepath.Join(AgentDir(dir), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := func(dir string) runtime.Config { return RuntimeConfig(dir, "/bin", settings.NodeConfig{}) }
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	records := "containerd/root/io.containerd.metadata.v1.bolt/meta.db"
	kept := []string{write(original, records), write(original, "local-path/pvc-1/file")}
	copied, volume, emptyDir := write(restored, records), write(restored, "local-path/pvc-1/file"), write(restored,
		"pods/uid/volumes/kubernetes.io~empty-dir/d/file")
	addresses := write(restored, "network/addresses")
	// Both folders have the stored configuration of the original, as a copy of the folder has.
	for _, dir := range []string{original, restored} {
		if err := StoreRuntimeConfig(dir, config(original)); err != nil {
			t.Fatal(err)
		}
		if err := DropMovedRuntime(t.Context(), dir, config(dir), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	// A symbolic link to the folder is another path, and the same folder.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(original, link); err != nil {
		t.Fatal(err)
	}
	if err := DropMovedRuntime(t.Context(), link, config(link), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(kept, volume, emptyDir) {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	if exists(copied) || exists(addresses) {
		t.Error("the restored folder still has records of the original's containers")
	}
}

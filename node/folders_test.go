package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFolders checks the permissions of the data folder: other users may enter it, and can read nothing in it.
func TestFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := makeFolders(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o711, "pods": 0o750, "logs": 0o750, "plugins": 0o750, "config.json": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q is %v (%v), want %o", name, info.Mode(), err, want)
		}
	}
}

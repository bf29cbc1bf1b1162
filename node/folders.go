package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// makeFolders makes the data folder of a node, and the folders in it that other users must not read. Processes of Pods with
// user namespaces reach their root file system through the data folder, so everybody may enter it; what it contains has
// its own permissions.
func makeFolders(dir string) error {
	for _, name := range []string{"pods", "logs", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o750); err != nil { //nolint:gosec // G302: a folder must be executable
			return err
		}
	}
	// The file contains registry passwords, and was written by another program.
	if err := os.Chmod(filepath.Join(dir, "config.json"), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // G302: processes of user namespaces pass through it
}

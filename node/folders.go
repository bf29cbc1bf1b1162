package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// folders makes the folder of a node, and those in it that others must not look into. Processes of Pods with users of their own
// pass through the first one on their way to their root, so anybody may; what is in it is protected by itself.
func folders(dir string) error {
	for _, name := range []string{"pods", "logs", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o750); err != nil { //nolint:gosec // G302: a folder
			return err
		}
	}
	// It has passwords, and somebody else has written it.
	if err := os.Chmod(filepath.Join(dir, "config.json"), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // G302: see above
}

package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckForeign returns an error if dir holds files and is not a data folder, as after a mistyped --data-dir: what is stored there would
// lie among the files of others. It changes nothing. A folder that does not exist, an empty one, also of a new filesystem, and one to
// which only parts of a data folder were brought, such as the keys of another server, is accepted.
func CheckForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // who may not read it hears of that when it is used
	}
	if err != nil {
		return fmt.Errorf("read the data folder: %w", err)
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case "admin.kubeconfig", "server.pid", "node", "nodes":
			return nil // a cluster or an agent has used it
		case "pki", "etcd", "bin", "server.yaml", "server.log", "server.stop-time", versionFile, versionFile + ".new", "lost+found":
		default:
			foreign = e.Name()
		}
	}
	if have, err := ReadVersion(dir); foreign == "" || err == nil && have.Format > 0 {
		return nil
	}
	return fmt.Errorf("%s holds %s, which proa did not make, and is not the folder of a cluster; nothing was changed. "+
		"--data-dir takes an empty folder or one that does not exist yet", dir, filepath.Join(dir, foreign))
}

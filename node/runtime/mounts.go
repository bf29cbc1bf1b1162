package runtime

import (
	"errors"
	"fmt"
	"path/filepath"

	"proa.dev/node/volume/mounts"
)

// mountsBelow are the mount points in a folder, the folder itself left out, in the order in which they can be taken away.
func mountsBelow(dir string) ([]string, error) {
	// The kernel follows symbolic links before it notes a mount.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range mounts.Under(table, dir) {
		if m.Point != dir { // somebody else mounted it for us
			out = append(out, m.Point)
		}
	}
	return out, nil
}

// unmountBelow unmounts everything below a folder. A mount that somebody still uses leaves the tree now, and ends with its
// last user.
func unmountBelow(dir string) error {
	for range 10 { // a mount may hide others
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		var failed error
		for _, p := range points {
			failed = errors.Join(failed, mounts.Detach(p))
		}
		if failed != nil {
			return failed
		}
	}
	return fmt.Errorf("something keeps mounting below %s", dir)
}

package runtime

import (
	"errors"
	"fmt"
	"path/filepath"

	"proa.dev/node/volume/mounts"
)

// mountsBelow returns the mount points in a folder, without the folder itself, in the order in which they can be
// unmounted.
func mountsBelow(dir string) ([]string, error) {
	// The kernel resolves symbolic links before it records a mount.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range mounts.Under(table, dir) {
		if m.Point != dir { // the folder itself was mounted by the administrator
			out = append(out, m.Point)
		}
	}
	return out, nil
}

// unmountBelow unmounts everything below a folder. A mount that is still in use is detached now, and ends with its last
// user.
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

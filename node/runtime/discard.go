package runtime

import (
	"errors"
	"os"
)

// Discard removes what a runtime has kept in its folder and ends nothing: the folder is a copy, and the containers of its records belong to
// the original, which may run. Nobody may run a runtime in the folder.
func Discard(c Config) error {
	l := newLayout(c.withDefaults().DataDir)
	if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lockFolder(l)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unmountBelow(l.dir); err != nil {
		return err
	}
	return removeFiles(l, nil)
}

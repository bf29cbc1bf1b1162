package runtime

import (
	"errors"
	"os"
)

// Discard removes the state of a runtime from its folder without ending any container: the folder is a copy, and the
// recorded containers belong to the original, which may be running. No runtime may run in the folder.
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

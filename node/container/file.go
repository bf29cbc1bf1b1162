package container

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// errNotDir is what a file in the place of a folder says.
var errNotDir = syscall.ENOTDIR

// writeWhole writes a file that is there whole or not at all, even if the machine stops in the middle.
func writeWhole(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

package container

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// errNotDir is the error of reading below a file as if it were a folder.
var errNotDir = syscall.ENOTDIR

// writeAtomically writes a file atomically: after a crash it has either the old or the new contents.
func writeAtomically(path string, text []byte) error {
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

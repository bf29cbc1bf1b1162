package storeencryption

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckStoreNotLost refuses to make a new embedded store where one has been. The key of Secrets is made after the store, so that a key
// without a store means that the store is gone, or on a disk that is not mounted.
func CheckStoreNotLost(dir, dataDir string) error {
	keyFile := keyFilePath(dataDir)
	if _, err := os.Stat(filepath.Join(dir, "member")); !errors.Is(err, fs.ErrNotExist) {
		return nil // it is there, or opening it tells what is wrong
	}
	if _, err := os.Stat(keyFile); err != nil {
		return nil
	}
	return fmt.Errorf("the embedded store in %s is missing, although %s shows that there was one. If it is on another disk, mount that; "+
		"otherwise put the folder back from a backup. To begin with an empty cluster, move that file away, and keep it: the Secrets of the old store cannot be read without it", dir, keyFile)
}

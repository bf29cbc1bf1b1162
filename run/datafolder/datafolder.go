// Package datafolder knows the data folders of clusters on this machine: where they are, which process has one locked,
// which programs are unpacked there, and how the embedded store in one is checked and repaired.
package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Resolve returns the absolute path of a data folder without symbolic links, because nodes name their network
// interfaces, rules and cgroups after it. The folder need not exist yet.
func Resolve(path string) (string, error) {
	path, err := Absolute(path)
	for range 40 { // as many links as the kernel follows
		if err != nil {
			return "", err
		}
		target, missing := filepath.EvalSymlinks(path)
		switch {
		case missing == nil:
			return target, nil
		case errors.Is(missing, fs.ErrPermission):
			return path, nil // the caller reports to whom the folder belongs
		case !errors.Is(missing, fs.ErrNotExist):
			return "", missing
		}
		link, notLink := os.Readlink(path)
		switch {
		case notLink == nil && filepath.IsAbs(link):
			path = link
		case notLink == nil:
			path = filepath.Join(filepath.Dir(path), link)
		default:
			parent, err := Resolve(filepath.Dir(path))
			return filepath.Join(parent, filepath.Base(path)), err
		}
	}
	return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
}

// Default returns the default data folder: a system folder for root, a folder in the home of everybody else.
func Default() string {
	path := "proa-data" // no home: a folder here is the best that is left
	if os.Geteuid() == 0 {
		path = "/var/lib/proa"
	} else if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		path = filepath.Join(base, "proa")
	} else if home, err := os.UserHomeDir(); err == nil {
		path = filepath.Join(home, ".local", "share", "proa")
	}
	resolved, err := Resolve(path)
	if err != nil {
		return path // the caller reports why it cannot be used
	}
	return resolved
}

// Absolute returns the absolute form of a path that a user has written. ~/ stands for the home folder.
func Absolute(v string) (string, error) {
	if strings.HasPrefix(v, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		v = filepath.Join(home, v[2:])
	}
	return filepath.Abs(v)
}

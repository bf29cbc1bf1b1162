// Package files writes the files of a volume atomically: readers see either all of the old ones or all of the new ones.
//
// The files are in a hidden folder with the time in its name, ..data is a symbolic link to that folder, and the visible
// names are links through ..data:
//
//	name                          -> ..data/name
//	..data                        -> ..2026_01_02_15_04_05.123456
//	..2026_01_02_15_04_05.123456/   name
//
// A new version is written beside the old one, and one rename of ..data shows it. Programs watch ..data for that, so
// the scheme is part of what Kubernetes promises.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of the scheme. No file of a volume may begin like them.
const (
	current = "..data"
	next    = "..data_tmp"
	stamp   = "..2006_01_02_15_04_05."
)

// The longest path and name of a file.
const (
	maxPath = 4096
	maxName = 255
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode
	// User owns the file; nil for the user of this process.
	User *int64
}

// Write makes the files of a folder equal to a payload, by relative paths. If nothing has changed, nothing is written.
// ready is called when the new files are written and before they are shown, to set their group. Calls for one folder
// must not overlap.
func Write(dir string, payload map[string]File, ready func() error) error {
	clean := make(map[string]File, len(payload))
	for p, f := range payload {
		if err := Check(p); err != nil {
			return err
		}
		clean[path.Clean(p)] = f
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	w := writer{root, clean}
	old, err := w.root.Readlink(current)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	stale, upToDate := w.compare(old)
	if !upToDate {
		if old, err = w.replace(ready); err != nil {
			return err
		}
	}
	if err := w.show(); err != nil {
		return err
	}
	if err := w.removeStale(stale); err != nil {
		return err
	}
	return w.removeOldVersions(old)
}

// Check validates the path of a file.
func Check(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("invalid path: must not be empty: %q", p)
	case path.IsAbs(p):
		return fmt.Errorf("invalid path: must be relative path: %s", p)
	case len(p) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	}
	names := strings.Split(p, "/")
	for _, name := range names {
		if name == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", p)
		}
		if len(name) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	if strings.HasPrefix(names[0], "..") {
		return fmt.Errorf("invalid path: must not start with '..': %s", p)
	}
	return nil
}

type writer struct {
	root  *os.Root
	files map[string]File
}

// compare returns the visible names that must be removed, and whether the files are up to date.
func (w writer) compare(old string) (stale []string, upToDate bool) {
	if old == "" || !strings.HasPrefix(old, "..") || strings.Contains(old, "/") {
		return nil, false
	}
	wanted := map[string]bool{}
	upToDate = true
	for p, f := range w.files {
		for at := p; at != "." && !wanted[at]; at = path.Dir(at) {
			wanted[at] = true
		}
		have, err := w.root.ReadFile(path.Join(old, p))
		upToDate = upToDate && err == nil && bytes.Equal(have, f.Data)
	}
	err := fs.WalkDir(w.root.FS(), old, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p, old), "/")
		if name != "" && !wanted[name] {
			upToDate = false
			if !strings.Contains(name, "/") {
				stale = append(stale, name)
			}
		}
		return nil
	})
	return stale, upToDate && err == nil
}

// replace writes a new version and shows it. It returns the folder of the version.
func (w writer) replace(ready func() error) (string, error) {
	made, err := w.folder()
	if err != nil {
		return "", err
	}
	err = w.fill(made)
	if err == nil && ready != nil {
		err = ready()
	}
	if err == nil {
		err = w.activate(made)
	}
	if err != nil {
		return "", errors.Join(err, w.root.RemoveAll(made))
	}
	return made, nil
}

// folder makes the folder of a version. Everybody may read it, whatever the umask.
func (w writer) folder() (string, error) {
	now := time.Now().UTC()
	for try := range 1000 {
		name := now.Format(stamp) + strconv.Itoa(now.Nanosecond()+try)
		err := w.root.Mkdir(name, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = w.root.Chmod(name, 0o755)
		}
		return name, err
	}
	return "", errors.New("no free name for a new version of the volume")
}

func (w writer) fill(dir string) error {
	for _, p := range slices.Sorted(maps.Keys(w.files)) {
		f, at := w.files[p], path.Join(dir, p)
		if err := w.parents(dir, p); err != nil {
			return err
		}
		if err := w.root.WriteFile(at, f.Data, f.Mode.Perm()); err != nil {
			return err
		}
		if err := w.root.Chmod(at, f.Mode); err != nil {
			return err
		}
		if f.User == nil {
			continue
		}
		if err := w.root.Lchown(at, int(*f.User), -1); err != nil {
			return err
		}
	}
	return nil
}

// parents makes the folders above a file.
func (w writer) parents(dir, p string) error {
	above := path.Dir(p)
	if above == "." {
		return nil
	}
	return w.root.MkdirAll(path.Join(dir, above), 0o777)
}

// activate makes a version the current one, atomically.
func (w writer) activate(to string) error {
	// A process that was killed right here may have left one.
	if err := w.root.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.root.Symlink(to, next); err != nil {
		return err
	}
	return w.root.Rename(next, current)
}

// show makes the visible links.
func (w writer) show() error {
	for p, f := range w.files {
		name, _, _ := strings.Cut(p, "/")
		info, err := w.root.Lstat(name)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			to, err := w.root.Readlink(name)
			if err != nil || to == path.Join(current, name) {
				continue
			}
			if err := w.root.Remove(name); err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			continue // a folder that another volume is mounted on
		}
		if err := w.root.Symlink(path.Join(current, name), name); err != nil {
			return err
		}
		if f.User == nil {
			continue
		}
		if err := w.root.Lchown(name, int(*f.User), -1); err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes the links to files that no longer exist. Anything else is left alone: it is a folder that another volume
// is mounted on.
func (w writer) removeStale(stale []string) error {
	for _, name := range stale {
		to, err := w.root.Readlink(name)
		if err != nil || to != path.Join(current, name) {
			continue
		}
		if err := w.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeOldVersions removes every version but one: the previous one, and what a killed process has left.
func (w writer) removeOldVersions(keep string) error {
	all, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range all {
		name := e.Name()
		if !e.IsDir() || name == keep || !isVersion(name) {
			continue
		}
		errs = append(errs, w.root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// isVersion reports whether a name is that of a version.
func isVersion(name string) bool {
	at := strings.LastIndex(name, ".")
	if at < 2 {
		return false
	}
	_, err := time.Parse(stamp, name[:at+1])
	return err == nil
}

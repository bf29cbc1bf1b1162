package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	modeDir    fs.FileMode = 0o700
	modeSecret fs.FileMode = 0o600
	modePublic fs.FileMode = 0o644
)

// tmpPrefix begins the names of files that are not complete yet.
const tmpPrefix = ".proa-tmp-"

// maxFile bounds the size of a file that is read.
const maxFile = 1 << 20

// folder is the open and locked PKI folder during one load.
type folder struct {
	path   string
	lock   *os.File
	staged []staged
	// unneeded are files to remove when the staged ones are in place.
	unneeded []string
}

// staged is a new file under its temporary name.
type staged struct {
	tmp  *os.File
	path string
}

// openFolder creates the folder if it is missing, and locks it until close, so that two first starts do not make two
// authorities.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(path, modeDir); err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, lock: lock}
	if err := f.prepare(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) prepare() error {
	for {
		err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", f.path, err)
		}
	}
	info, err := f.lock.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.lock.Chmod(modeDir); err != nil {
			return err
		}
	}
	return f.sweep()
}

// sweep removes temporary files of a process that was killed. No other process has any while the lock is held.
func (f *folder) sweep() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			if err := os.Remove(filepath.Join(f.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// close removes files that were not flushed and releases the lock, which the kernel also does when the process dies.
func (f *folder) close() {
	for _, s := range f.staged {
		s.drop()
	}
	f.lock.Close()
}

// flush puts the new files in place, in the order in which they were written, and makes that durable. The disk writes
// overlap, because a first start writes fourteen files.
func (f *folder) flush() error {
	if len(f.staged) == 0 {
		return nil
	}
	errs := make([]error, len(f.staged))
	var wg sync.WaitGroup
	for i, s := range f.staged {
		wg.Go(func() { errs[i] = s.tmp.Sync() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for len(f.staged) > 0 {
		if err := f.staged[0].commit(); err != nil {
			return err
		}
		f.staged = f.staged[1:]
	}
	if err := f.lock.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return f.removeUnneeded()
}

// removeUnneeded removes the files that are no longer needed. If a crash leaves some, the next load removes them.
func (f *folder) removeUnneeded() error {
	for _, name := range f.unneeded {
		if err := os.Remove(filepath.Join(f.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f.unneeded = nil
	return nil
}

func (f *folder) read(name string) ([]byte, error) {
	path := filepath.Join(f.path, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, f.problem(name, errors.New("is not a PEM file"), "move it away")
	}
	return os.ReadFile(path)
}

// readKey reads a private key, and removes the permissions of other users if there are any.
func (f *folder) readKey(name string) ([]byte, error) {
	data, err := f.read(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.path, name)
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, modeSecret); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// write stages a file; flush makes it visible.
func (f *folder) write(name string, data []byte, mode fs.FileMode) error {
	s, err := stage(filepath.Join(f.path, name), data, mode)
	if err != nil {
		return err
	}
	f.staged = append(f.staged, s)
	return nil
}

// problem returns an error that names the file, what is wrong with it and what to do.
func (f *folder) problem(name string, err error, remedy string) error {
	return fmt.Errorf("%s %w; %s", filepath.Join(f.path, name), err, remedy)
}

// stage writes data beside path under a temporary name.
func stage(path string, data []byte, mode fs.FileMode) (staged, error) {
	// CreateTemp opens with 0600, so a key is never readable by others, not even for a moment.
	tmp, err := os.CreateTemp(filepath.Dir(path), tmpPrefix+filepath.Base(path)+".*")
	if err != nil {
		return staged{}, err
	}
	s := staged{tmp: tmp, path: path}
	if _, err = tmp.Write(data); err == nil && mode != modeSecret {
		err = tmp.Chmod(mode)
	}
	if err != nil {
		s.drop()
		return staged{}, err
	}
	return s, nil
}

// commit renames the file to its real name.
func (s staged) commit() error {
	if err := s.tmp.Close(); err != nil {
		return err
	}
	return os.Rename(s.tmp.Name(), s.path)
}

// drop removes the temporary file.
func (s staged) drop() {
	s.tmp.Close()
	os.Remove(s.tmp.Name())
}

// writeAtomic replaces a file as a whole: readers see the old or the new content, also after a crash.
func writeAtomic(path string, data []byte, mode fs.FileMode) error {
	s, err := stage(path, data, mode)
	if err != nil {
		return err
	}
	if err = s.tmp.Sync(); err == nil {
		err = s.commit()
	}
	if err != nil {
		s.drop()
	}
	return err
}

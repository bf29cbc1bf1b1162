// Package recordfile keeps the latest records of package hop in a file, so that traces survive a restart of the server. What is in the
// file can be lost without harm: a file that cannot be read is ignored.
package recordfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"proa.dev/hop"
)

const (
	// Name is the name of the file in the data folder; with unfinished behind it, it is a file that is being written.
	Name       = "trace-records"
	unfinished = ".new"
	// MaxRecords is how many records a file has at most, and maxBytes how large it is.
	MaxRecords = 8000
	maxBytes   = 16 << 20
)

// IsName tells whether a file of the data folder is one of this package.
func IsName(name string) bool { return name == Name || name == Name+unfinished }

// Save writes the newest records, which are sorted by start, in place of the file.
func Save(file string, records []hop.Record) error { return replace(file, encode(records)) }

// replace writes a file under another name and then gives it its own.
func replace(file string, data []byte) error {
	if err := os.Remove(file + unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(file+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong before is the error
	}
	return err
}

// Load reads the records of a file. A file that does not exist has none.
func Load(file string) ([]hop.Record, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, err
	}
	return decode(data)
}

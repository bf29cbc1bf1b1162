package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
)

// The endings of rotated files: LOG.TIME, LOG.TIME.gz, and LOG.TIME.tmp while one is compressed.
const (
	zipped     = ".gz"
	unfinished = ".tmp"
	// rotatedLayout sorts by time as text.
	rotatedLayout = "20060102-150405"
)

// rotated are the files that were rotated away from a log, oldest first, and what a rotation that was cut short has left.
func rotated(path string) (files, rubbish []string, err error) {
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	prefix := filepath.Base(path) + "."
	names := map[string]bool{}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), prefix) {
			names[e.Name()] = true
		}
	}
	for name := range names {
		full := filepath.Join(filepath.Dir(path), name)
		// A file that is there compressed and as it was is not needed as it was.
		if strings.HasSuffix(name, unfinished) || names[name+zipped] {
			rubbish = append(rubbish, full)
		} else {
			files = append(files, full)
		}
	}
	// Of two in a second the later one has a number.
	slices.SortFunc(files, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, zipped), strings.TrimSuffix(b, zipped))
	})
	slices.Sort(rubbish)
	return files, rubbish, nil
}

// file is an open part of a log.
type file struct {
	*os.File
	lines *bufio.Reader
	zip   *gzip.Reader // nil when it is not compressed
}

// maxLine bounds an entry: runtimes cut the lines of containers at 16 KiB, and what is longer is no entry.
const maxLine = 1 << 20

func open(path string) (*file, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	out := &file{File: f}
	var from io.Reader = f
	if strings.HasSuffix(path, zipped) {
		if out.zip, err = gzip.NewReader(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("open log file %q: %w", path, err)
		}
		from = out.zip
	}
	out.lines = bufio.NewReaderSize(from, 64<<10)
	return out, nil
}

// openFile opens a file that is one: whoever can write into the folder of a log must not make the agent read something else.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// next appends a line with its end to buf. At the end of the file it returns io.EOF with the beginning of a line, if there is
// one, to which it may be asked to append the rest. A line that is too long is cut.
func (f *file) next(buf []byte) ([]byte, error) {
	for {
		part, err := f.lines.ReadSlice('\n')
		if room := maxLine - len(buf); len(part) > room {
			part = part[:max(room, 0)]
		}
		buf = append(buf, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return buf, err
	}
}

// count reads to the end of the file and counts the lines that containers ended.
func (f *file) count() (n int64, err error) {
	var line []byte
	for {
		if line, err = f.next(line[:0]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
		if whole(line) {
			n++
		}
	}
}

// skip reads past a number of lines.
func (f *file) skip(n int64) (err error) {
	var line []byte
	for n > 0 {
		if line, err = f.next(line[:0]); err != nil {
			return err
		}
		if whole(line) {
			n--
		}
	}
	return nil
}

// olderThan says that nothing in a file is from after a time.
func olderThan(path string, since time.Time) bool {
	if since.IsZero() {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.ModTime().Before(since)
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

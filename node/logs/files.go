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

// The suffixes of rotated files: LOG.TIME, LOG.TIME.gz, and LOG.TIME.tmp while it is being compressed.
const (
	gzipSuffix = ".gz"
	tmpSuffix  = ".tmp"
	// rotatedLayout sorts by time as text.
	rotatedLayout = "20060102-150405"
)

// rotated returns the rotated files of a log, oldest first, and what an interrupted rotation has left behind.
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
		// If a file exists both compressed and uncompressed, the uncompressed one is not needed.
		if strings.HasSuffix(name, tmpSuffix) || names[name+gzipSuffix] {
			rubbish = append(rubbish, full)
		} else {
			files = append(files, full)
		}
	}
	// Of two files of one second the later one has a number.
	slices.SortFunc(files, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, gzipSuffix), strings.TrimSuffix(b, gzipSuffix))
	})
	slices.Sort(rubbish)
	return files, rubbish, nil
}

// file is an open file of a log.
type file struct {
	*os.File
	lines *bufio.Reader
	zip   *gzip.Reader // nil if it is not compressed
}

// maxLine limits an entry: runtimes cut the lines of containers at 16 KiB, and a longer line is no entry.
const maxLine = 1 << 20

func open(path string) (*file, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	out := &file{File: f}
	var from io.Reader = f
	if strings.HasSuffix(path, gzipSuffix) {
		if out.zip, err = gzip.NewReader(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("open log file %q: %w", path, err)
		}
		from = out.zip
	}
	out.lines = bufio.NewReaderSize(from, 64<<10)
	return out, nil
}

// openFile opens a regular file: whoever can write into the folder of a log must not make the agent read something
// else.
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

// next appends a line with its newline to buf. At the end of the file it returns io.EOF with the beginning of a line,
// if there is one, to which a later call can append the rest. A line that is too long is cut.
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

// count reads to the end of the file and counts the complete lines of the container.
func (f *file) count() (n int64, err error) {
	var line []byte
	for {
		if line, err = f.next(line[:0]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
		if endsLine(line) {
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
		if endsLine(line) {
			n--
		}
	}
	return nil
}

// olderThan reports whether a file was last written before a time.
func olderThan(path string, since time.Time) bool {
	if since.IsZero() {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.ModTime().Before(since)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Package bundle has the programs that a release of proa embeds in its binary: what a node runs beside it, and kubectl.
// They are unpacked into a folder when they are first needed. Every set of programs has a folder of its own, which is
// created atomically, so that another release does not change what runs.
package bundle

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// The limits of a set of programs.
const (
	maxFiles = 64
	maxSize  = 1 << 30
	maxHead  = 64 << 10
)

// file is a program of the set.
type file struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  string `json:"sha256"`
}

// Set is a packed set of programs: a line of JSON that lists them, followed by all of them, one after the other,
// compressed.
type Set struct {
	files   []file
	version string
	body    []byte
}

// Pack writes a set of programs.
func Pack(w io.Writer, paths ...string) error {
	var all []file
	var bodies [][]byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		all, bodies = append(all, file{filepath.Base(path), int64(len(data)), hex.EncodeToString(sum[:])}), append(bodies, data)
	}
	head, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(head, '\n')); err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	for _, data := range bodies {
		if _, err := z.Write(data); err != nil {
			return err
		}
	}
	return z.Close()
}

// Open reads the list of a set. Nothing is unpacked yet.
func Open(data []byte) (*Set, error) {
	head, _, found := bytes.Cut(data[:min(len(data), maxHead)], []byte("\n"))
	if !found {
		return nil, errors.New("the programs that proa carries have no beginning; the release is broken")
	}
	s := &Set{body: data[len(head)+1:]}
	if err := json.Unmarshal(head, &s.files); err != nil {
		return nil, fmt.Errorf("the programs that proa carries cannot be read; the release is broken: %w", err)
	}
	var sum int64
	for _, f := range s.files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || strings.HasPrefix(f.Name, ".") || f.Size < 0 || f.Size > maxSize {
			return nil, fmt.Errorf("proa carries a program %q of %d bytes; the release is broken", f.Name, f.Size)
		}
		sum += f.Size
	}
	if len(s.files) == 0 || len(s.files) > maxFiles || sum > maxSize {
		return nil, fmt.Errorf("proa carries %d programs with %d bytes; the release is broken", len(s.files), sum)
	}
	id := sha256.Sum256(head)
	s.version = hex.EncodeToString(id[:8])
	return s, nil
}

// Names returns the names of the programs.
func (s *Set) Names() (out []string) {
	for _, f := range s.files {
		out = append(out, f.Name)
	}
	return out
}

// Folder returns where the programs are below a folder once they are unpacked there.
func (s *Set) Folder(dir string) string { return filepath.Join(dir, s.version) }

// Unpack makes sure that the programs are unpacked below a folder, and returns where. Several processes may call it at
// once.
func (s *Set) Unpack(dir string) (string, error) {
	to := s.Folder(dir)
	if s.whole(to) {
		return to, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: programs are for everybody
		return "", fmt.Errorf("unpack the programs that proa carries: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("unpack the programs that proa carries: %w", err)
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("unpack the programs that proa carries: %w", err)
	}
	if s.whole(to) { // another process was faster
		return to, nil
	}
	if err := s.unpack(dir, to); err != nil {
		return "", fmt.Errorf("unpack the programs that proa carries: %w", err)
	}
	prune(dir, s.version)
	return to, nil
}

// whole reports whether all programs are there.
func (s *Set) whole(folder string) bool {
	for _, f := range s.files {
		info, err := os.Lstat(filepath.Join(folder, f.Name))
		if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size || info.Mode().Perm()&0o111 == 0 {
			return false
		}
	}
	return true
}

func (s *Set) unpack(dir, to string) error {
	unpacked, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unpacked)
	z, err := zstd.NewReader(bytes.NewReader(s.body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	in := bufio.NewReaderSize(z, 1<<20)
	for _, f := range s.files {
		if err := f.write(in, filepath.Join(unpacked, f.Name)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if err := os.Chmod(unpacked, 0o755); err != nil { //nolint:gosec // G302: programs are for everybody
		return err
	}
	// What is there is incomplete. It may still be running, so it is moved away before it is removed.
	if _, err := os.Lstat(to); err == nil {
		if err := os.Rename(to, filepath.Join(unpacked, ".broken")); err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Join(to, ".broken"))
	}
	return os.Rename(unpacked, to)
}

// write writes one program, and checks that it is the one that was packed.
func (f *file) write(in io.Reader, path string) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // G302: it is a program
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(out, sum), in, f.Size)
	err = errors.Join(err, out.Sync(), out.Chmod(0o755), out.Close())
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.Sum {
		return fmt.Errorf("its sum is %s, not %s; the release is broken", got, f.Sum)
	}
	return nil
}

// prune removes the sets of other releases except for the previous one, which a runtime may still need, and those that
// are running.
func prune(dir, keep string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	last, begin := "", time.Time{}
	var old []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || e.Name() == keep || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		old = append(old, e.Name())
		if info.ModTime().After(begin) {
			last, begin = e.Name(), info.ModTime()
		}
	}
	for _, name := range old {
		if path := filepath.Join(dir, name); name != last && !isRunning(path) {
			_ = os.RemoveAll(path)
		}
	}
}

// isRunning reports whether a process runs a program of a folder.
func isRunning(folder string) bool {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return true
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, folder+"/") {
			return true
		}
	}
	return false
}

package solo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// reserved makes a file whose places are reserved, as etcd does, with something in it, and what writes ahead in it.
func reserved(t *testing.T, size int64, what map[int64]string) (string, *ahead) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		t.Skip(err)
	}
	for at, text := range what {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	a := &ahead{}
	t.Cleanup(func() { _ = a.close() })
	err = a.open(name)
	if errors.Is(err, errNotInPlace) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name, a
}

// unwritten is the number of bytes of a file that are only reserved. What was read counts as written, so nobody may have.
func unwritten(t *testing.T, name string) (n int64) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
	size, err := f.Seek(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_HOLE)
		if err != nil {
			t.Fatal(err)
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
		if err != nil {
			to = size // there is no more
		}
		n += to - from
		at = to
	}
	return n
}

// TestWriteAhead goes through a file step by step, and changes nothing that can be read.
func TestWriteAhead(t *testing.T) {
	const size = 8*aheadBy + 5000
	begin := strings.Repeat("x", 6000)
	name, a := reserved(t, size, map[int64]string{0: begin})
	if n := unwritten(t, name); n < size-2*8192 {
		t.Skipf("the file system says that only %d bytes of %d were never written", n, size)
	}
	last := unwritten(t, name)
	for step := int64(1); step <= 10; step++ {
		if err := a.write(); err != nil {
			t.Fatal(err)
		}
		if n := unwritten(t, name); n > max(0, last-aheadBy) || n == 0 && step < 6 {
			t.Errorf("after %d steps %d bytes were never written, before %d", step, n, last)
		} else {
			last = n
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || len(got) != size || string(got[:len(begin)]) != begin || len(bytes.Trim(got[len(begin):], "\x00")) > 0 {
		t.Fatalf("the file has %d bytes, or others: %v", len(got), err)
	}
}

// TestWriteAheadOfSomething leaves alone what is there, wherever it is.
func TestWriteAheadOfSomething(t *testing.T) {
	const size = 4 * aheadBy
	what := map[int64]string{}
	for _, at := range []int64{0, 8192, 20000, aheadBy - 1, aheadBy + 8191, 3*aheadBy - 3, size - 2} {
		what[at] = "yy"
	}
	name, a := reserved(t, size, what)
	a.at = 0
	for range 5 {
		if err := a.write(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || len(got) != size || bytes.Count(got, []byte("yy")) != len(what) || bytes.Count(got, []byte{0}) != size-2*len(what) {
		t.Errorf("the file has changed: %d bytes, %v", len(got), err)
	}
	for at := range what {
		if string(got[at:at+2]) != "yy" {
			t.Errorf("at %d there is %q", at, got[at:at+2])
		}
	}
}

// TestAheadOfTheLog is in a member that goes from file to file, and notes between its entries where its log may begin.
func TestAheadOfTheLog(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	if m.log.ahead.off {
		shut(t, m)
		t.Skip("nothing is written ahead here")
	}
	files := map[string]bool{}
	l := newLedger()
	for n := range 400 {
		if err := l.write(t.Context(), m, fmt.Sprint(n, strings.Repeat("y", n)), true); err != nil {
			t.Fatal(err)
		}
		files[m.log.ahead.file.Name()] = true
	}
	if m.log.ahead.off || len(files) < 2 {
		t.Errorf("it has stopped: %v, after the files %v", m.log.ahead.off, files)
	}
	// The file may have been removed from its folder, when the log began anew.
	if n := unwritten(t, fmt.Sprint("/proc/self/fd/", m.log.ahead.file.Fd())); n > 0 {
		t.Errorf("%d bytes of a file that is smaller than a step were never written", n)
	}
	l.check(t, ours{m})
	shut(t, m)
	for _, genuine := range []bool{false, true} {
		s := start(t, genuine, cfg)
		l.check(t, s)
		s.stop(t)
	}
}

package memberlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrewrite prewrites a file step by step, and checks that its content does not change.
func TestPrewrite(t *testing.T) {
	const size = 8*aheadBy + 5000
	begin := strings.Repeat("x", 6000)
	name, a := preallocatedFile(t, size, map[int64]string{0: begin})
	if n := countUnwritten(t, name); n < size-2*8192 {
		t.Skipf("the file system says that only %d bytes of %d were never written", n, size)
	}
	last := countUnwritten(t, name)
	for step := int64(1); step <= 10; step++ {
		if err := a.write(); err != nil {
			t.Fatal(err)
		}
		if n := countUnwritten(t, name); n > max(0, last-aheadBy) || n == 0 && step < 6 {
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

// TestPrewriteKeepsContent checks that prewriting does not change existing content.
func TestPrewriteKeepsContent(t *testing.T) {
	const size = 4 * aheadBy
	what := map[int64]string{}
	for _, at := range []int64{0, 8192, 20000, aheadBy - 1, aheadBy + 8191, 3*aheadBy - 3, size - 2} {
		what[at] = "yy"
	}
	name, a := preallocatedFile(t, size, what)
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

// preallocatedFile returns a preallocated file with some content, as etcd makes it, and a prewriter for it.
func preallocatedFile(t *testing.T, size int64, what map[int64]string) (string, *prewriter) {
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
	a := &prewriter{}
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

// countUnwritten returns the number of preallocated bytes of a file that were never written. Bytes that were read count as
// written.
func countUnwritten(t *testing.T, name string) (n int64) {
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
			to = size // there is no data up to the end
		}
		n += to - from
		at = to
	}
	return n
}

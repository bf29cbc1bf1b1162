package subpath_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proa.dev/node/subpath"
)

// TestReadFile reads each of the files that a container may leave for the agent. Nobody writes to the named pipe, so a reader that
// waits for it never returns.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("folder"), 0o755), os.WriteFile(at("folder/plain"), []byte("text"), 0o600),
		os.Symlink("folder/plain", at("link")), os.Symlink("/etc/passwd", at("out")), os.Symlink("loop", at("loop")),
		unix.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("sparse"), nil, 0o600), os.Truncate(at("sparse"), 900<<30)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil { // /dev/zero
		t.Log(err)
	}
	for name, want := range map[string]string{
		"folder/plain": "text", "link": "text", "out": "cannot", "loop": "cannot", "pipe": "cannot", "sparse": "cannot", "device": "cannot",
		"folder": "cannot", "../x": "cannot", "none": "cannot",
	} {
		got, err := subpath.ReadFile(dir, name, 4)
		if err != nil {
			got = []byte("cannot")
		}
		if string(got) != want {
			t.Errorf("%s: got %.20q (%d bytes), %v, want %q", name, got, len(got), err, want)
		}
	}
}

// TestReadFileDuringChanges reads a file that a container exchanges with a huge one, again and again.
func TestReadFileDuringChanges(t *testing.T) {
	const limit = 100
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("small"), []byte("A='x'"), 0o600),
		os.WriteFile(at("large"), []byte(strings.Repeat("x", 100*limit)), 0o600)); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("small"), unix.AT_FDCWD, at("large"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 3000 {
		if got, err := subpath.ReadFile(dir, "small", limit); err == nil && string(got) != "A='x'" {
			t.Fatalf("got %d bytes", len(got))
		}
	}
}

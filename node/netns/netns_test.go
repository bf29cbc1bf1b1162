package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDo(t *testing.T) {
	if err := Do(filepath.Join(t.TempDir(), "none"), func() error { t.Error("it was called"); return nil }); err == nil {
		t.Error("a namespace that does not exist was entered")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network namespace, even its own")
	}
	want := errors.New("mine")
	if err := Do("/proc/self/ns/net", func() error { return want }); !errors.Is(err, want) {
		t.Error(err)
	}
}

func TestMake(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may create a network namespace")
	}
	path := filepath.Join(t.TempDir(), "net")
	if Is(path) {
		t.Error("a missing file is a namespace")
	}
	id := func(path string) uint64 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	if err := Make(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Remove(path) })
	first := id(path)
	if !Is(path) || first == id("/proc/self/ns/net") {
		t.Error("not a network namespace, or that of this process")
	}
	if err := Make(path); err != nil || id(path) != first {
		t.Error("an existing namespace was replaced", err)
	}
	// A process that Do starts runs in the namespace.
	cmd := exec.Command("readlink", "/proc/self/ns/net")
	var out strings.Builder
	cmd.Stdout = &out
	if err := errors.Join(Do(path, cmd.Start), cmd.Wait()); err != nil ||
		strings.TrimSpace(out.String()) != fmt.Sprintf("net:[%d]", first) {
		t.Errorf("%s, %v; want %d", out.String(), err, first)
	}
	if err := errors.Join(Remove(path), Remove(path)); err != nil {
		t.Fatal(err)
	}
	// After a reboot the path is an ordinary file.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Make(path); err != nil || !Is(path) {
		t.Error("a file was not replaced", err)
	}
}

package goprocess

import (
	"os"
	"path/filepath"
	"testing"
)

func TestShareOfMemory(t *testing.T) {
	for machine, want := range map[int64]int64{0: 512 << 20, 1 << 30: 512 << 20, 8 << 30: 2 << 30, 64 << 30: 4 << 30} {
		if got := ShareOfMemory(machine); got != want {
			t.Errorf("of %d: %d, want %d", machine, got, want)
		}
	}
}

func TestMachineMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "meminfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := MachineMemory(write("MemFree: 5 kB\nMemTotal:       16384 kB\n")); got != 16<<20 {
		t.Errorf("got %d", got)
	}
	for _, text := range []string{"", "MemTotal: much kB\n"} {
		if got := MachineMemory(write(text)); got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
	if got := MachineMemory(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("no file: %d", got)
	}
}

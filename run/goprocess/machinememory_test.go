package goprocess

import (
	"os"
	"path/filepath"
	"testing"
)

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

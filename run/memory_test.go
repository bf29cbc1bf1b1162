package run

import (
	"os"
	"path/filepath"
	"testing"

	"proa.dev/server"
)

func TestRequestMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "meminfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := machineMemory(write("MemFree: 5 kB\nMemTotal:       16384 kB\n")); got != 16<<20 {
		t.Errorf("got %d", got)
	}
	for _, text := range []string{"", "MemTotal: much kB\n"} {
		if got := machineMemory(write(text)); got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
	if got := machineMemory(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("no file: %d", got)
	}
	c := Default()
	if got := c.requestMemory(); got < leastRequestMemory || got > mostRequestMemory || server.DefaultMemory < leastRequestMemory {
		t.Errorf("by itself: %d", got)
	}
	if c.RequestMemory = 64 << 20; c.requestMemory() != 64<<20 {
		t.Error("what is set does not count")
	}
	for v, want := range map[string]int64{"2Gi": 2 << 30, "64Mi": 64 << 20, "1e9": 1e9, "63Mi": 0, "-1": 0, "much": 0} {
		if got, err := parseMemory(v); got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d %v", v, got, err)
		}
	}
}

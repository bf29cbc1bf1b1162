package volume_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// owner shows who owns what is at a path, and its mode.
func owner(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d %d %v", s.Uid, s.Gid, info.Mode())
}

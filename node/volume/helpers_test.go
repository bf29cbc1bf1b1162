package volume_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// owner returns the user, group and mode of a file.
func owner(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d %d %v", s.Uid, s.Gid, info.Mode())
}

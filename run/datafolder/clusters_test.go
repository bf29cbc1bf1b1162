package datafolder

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestClustersAreListed checks that the list of clusters has those that were remembered, without forgotten ones and deleted folders.
func TestClustersAreListed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("the list of root is the machine's")
	}
	home := t.TempDir()
	t.Setenv("XDG_DATA_HOME", home)
	var dirs []string
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		dir := filepath.Join(home, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		for range 2 {
			wg.Go(func() {
				if err := Remember(dir); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	checkKnown := func(want ...string) {
		t.Helper()
		if got, err := Known(); err != nil || !slices.Equal(got, want) {
			t.Errorf("known are %v (%v), want %v", got, err, want)
		}
	}
	checkKnown(dirs...)
	if err := Forget(dirs[1]); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dirs[2]); err != nil {
		t.Fatal(err)
	}
	checkKnown(dirs[0], dirs[3])
}

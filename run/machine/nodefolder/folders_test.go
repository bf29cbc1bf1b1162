package nodefolder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFurtherNames(t *testing.T) {
	dir := t.TempDir()
	if got, err := FurtherNames(dir); err != nil || got != nil {
		t.Errorf("%v, %v of a folder without nodes", got, err)
	}
	for _, name := range []string{"a-10", "a-2", "b.c-3"} {
		if err := os.MkdirAll(filepath.Join(NodesDir(dir), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(BridgeFile(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := FurtherNames(dir); err != nil || !slices.Equal(got, []string{"a-2", "b.c-3", "a-10"}) {
		t.Errorf("%v, %v", got, err)
	}
}

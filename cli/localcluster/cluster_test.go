package localcluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDataFolderBehindSymlink checks that a data folder has the same path whether or not it is named by a symbolic link: nodes
// derive names from that path.
func TestDataFolderBehindSymlink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	want, err := ClusterAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ClusterAt(link); err != nil || c != want {
		t.Errorf("the cluster behind %s is in %s, %v, want %s", link, c.Dir, err, want.Dir)
	}
}

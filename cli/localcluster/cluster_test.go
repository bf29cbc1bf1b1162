package localcluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDataFolderBehindALink: commands find the cluster by the path that its nodes have named things after.
func TestDataFolderBehindALink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	straight, err := ClusterAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ClusterAt(link); err != nil || c != straight {
		t.Errorf("the cluster behind %s is in %s, %v, want %s", link, c.Dir, err, straight.Dir)
	}
}

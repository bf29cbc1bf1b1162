package teardown

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"proa.dev/run"
)

// TestDataOfUnwantedNodes checks that the data of nodes that are no longer wanted is listed.
func TestDataOfUnwantedNodes(t *testing.T) {
	c := run.Default()
	c.DataDir, c.Node.Name, c.Nodes = t.TempDir(), "a", 2
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(c.DataDir, "nodes", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a-2/node/local-path/pvc-kept/file", "of a node that stays")
	write("a-3/agent.log", "a node without data")
	write("a-4/node/local-path/pvc-1/file", "data")
	write("a-4/node/pods/uid-1/volumes/kubernetes.io~empty-dir/cache/file", "data")
	write("a-4/node/pods/uid-1/volumes/kubernetes.io~configmap/x/file", "no data of its own")
	write("a-4/node/logs/pods/default_web-0_uid-1/web/0.log", "")
	if err := os.MkdirAll(filepath.Join(c.DataDir, "nodes/a-4/node/pods/uid-1/volumes/kubernetes.io~empty-dir/empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		data, err := DataOfUnwanted(&c.Config)
		if got := fmt.Sprint(data); err != nil || got != want {
			t.Errorf("with %d nodes %s is lost (%v), want %s", c.Nodes, got, err, want)
		}
	}
	check("[{a-4 [pvc-1] [default/web-0: cache]}]")
	c.Nodes = 4
	check("[]")
	c.Nodes = 0 // the number of nodes is not set
	check("[]")
}

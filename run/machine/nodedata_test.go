package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run"
)

// up --nodes with a smaller number names what the nodes that go away keep, and finds nothing where there is nothing.
func TestFewerNodesNameWhatWouldBeLost(t *testing.T) {
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
		lost, err := DataOfUnwanted(&c)
		if got := fmt.Sprint(lost); err != nil || got != want {
			t.Errorf("with %d nodes %s is lost (%v), want %s", c.Nodes, got, err, want)
		}
	}
	check("[{a-4 [pvc-1] [default/web-0: cache]}]")
	c.Nodes = 4
	check("[]")
	c.Nodes = 0 // nobody has said a number
	check("[]")
}

// Nobody's data is removed because a config says a smaller number: the user has to agree first.
func TestServerKeepsNodesWithData(t *testing.T) {
	c := run.Default()
	c.DataDir, c.Node.Name, c.Nodes = t.TempDir(), "a", 1
	file := filepath.Join(c.DataDir, "nodes/a-2/node/local-path/pvc-1/file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := further{name: "a-2", number: 2, dir: filepath.Join(c.DataDir, "nodes", "a-2")}
	if err := mayRemove(f); err == nil || !strings.Contains(err.Error(), "pvc-1") || !strings.Contains(err.Error(), "--remove-data") {
		t.Errorf("a node with data may be removed: %v", err)
	}
	s := &Machine{Server: &run.Server{Config: c}}
	if err := s.fewerNodes(context.Background()); err == nil || !strings.Contains(err.Error(), "pvc-1") {
		t.Errorf("the server removes a node with data: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	if err := AllowDataRemoval(&c); err != nil {
		t.Fatal(err)
	}
	if err := mayRemove(f); err != nil {
		t.Errorf("the user has agreed, and the node stays: %v", err)
	}
}

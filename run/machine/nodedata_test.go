package machine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/machine/teardown"
)

// TestServerKeepsNodesWithData checks that the server removes a node with data only if the user has agreed.
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
	f := nodefolder.Node{Name: "a-2", Number: 2, Dir: filepath.Join(c.DataDir, "nodes", "a-2")}
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
	if err := teardown.AllowDataRemoval(&c.Config); err != nil {
		t.Fatal(err)
	}
	if err := mayRemove(f); err != nil {
		t.Errorf("the user has agreed, and the node stays: %v", err)
	}
	// A server that starts with the node takes that back, so that the node is not removed without asking later.
	more := c
	more.Nodes = 2
	s = &Machine{Server: &run.Server{Config: more}}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.furtherNodes(ctx); err != nil {
		t.Fatal(err)
	}
	if err := mayRemove(f); err == nil {
		t.Error("an agreement about an earlier start counts for ever")
	}
}

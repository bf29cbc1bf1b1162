package run_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run"
)

// TestLostStoreIsNotReplaced checks that a server whose store is gone does not start with an empty one.
func TestLostStoreIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := run.Default()
	c.DataDir, c.Listen = t.TempDir(), "127.0.0.1:0"
	start := func() error {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		return run.Serve(ctx, c, slog.New(slog.DiscardHandler), func(*run.Server) { stop() })
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.DataDir, "etcd"), filepath.Join(c.DataDir, "aside")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a refused start changes nothing
		if err := start(); err == nil || !strings.Contains(err.Error(), filepath.Join(c.DataDir, "etcd")+" is missing") {
			t.Errorf("the server starts without its store: %v", err)
		}
	}
	if err := os.Rename(filepath.Join(c.DataDir, "aside"), filepath.Join(c.DataDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Errorf("the server does not start with its store again: %v", err)
	}
}

package podnetwork

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"proa.dev/network/cni"
)

// TestServeEndsWithItsListener closes the socket of a network: everything ends, so that the caller can start it again.
func TestServeEndsWithItsListener(t *testing.T) {
	l, err := cni.Listen(filepath.Join(t.TempDir(), "cni.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := &Network{Config: Config{Log: slog.New(slog.DiscardHandler)}, listen: l}
	if err := n.Serve(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}

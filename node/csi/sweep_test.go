package csi

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// counting is a driver that counts how often it is asked to unstage.
type counting struct {
	spec.NodeClient
	unstaged atomic.Int32
}

func (c *counting) NodeUnstageVolume(context.Context, *spec.NodeUnstageVolumeRequest, ...grpc.CallOption) (*spec.NodeUnstageVolumeResponse,
	error) {
	c.unstaged.Add(1)
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// TestSweepLooksAgain holds that a volume that is unpublished from its last Pod while the sweep waits for its lock is unstaged
// only once.
func TestSweepLooksAgain(t *testing.T) {
	for _, gone := range []bool{true, false} {
		func() {
			d := New(Config{Dir: t.TempDir()})
			dir := filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", "a.example.com", "1")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			text := `{"driverName":"a.example.com","volumeHandle":"h1","stage":"` + filepath.Join(dir, "stage") + `"}`
			if err := os.WriteFile(filepath.Join(dir, dataFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			note, _, err := load(dir)
			if err != nil {
				t.Fatal(err)
			}
			client := &counting{}
			release := d.locks.Lock(note.key())
			done := make(chan error, 1)
			go func() {
				done <- d.unstageIfUnused(t.Context(), &driver{name: "a.example.com", NodeClient: client}, dir)
			}()
			for d.locks.Users(note.key()) < 2 { // until the sweep waits
				runtime.Gosched()
			}
			if gone {
				if err := erase(dir); err != nil {
					t.Fatal(err)
				}
			}
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if n := client.unstaged.Load(); (n == 0) != gone {
				t.Errorf("taken away: %t, unstaged %d times", gone, n)
			}
		}()
	}
}

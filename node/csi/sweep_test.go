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

// countingClient counts calls of NodeUnstageVolume.
type countingClient struct {
	spec.NodeClient
	unstaged atomic.Int32
}

func (c *countingClient) NodeUnstageVolume(context.Context, *spec.NodeUnstageVolumeRequest,
	...grpc.CallOption) (*spec.NodeUnstageVolumeResponse, error) {
	c.unstaged.Add(1)
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// TestUnstageIfUnusedChecksAgain checks that a volume that is unstaged while unstageIfUnused waits for its lock is unstaged
// only once.
func TestUnstageIfUnusedChecksAgain(t *testing.T) {
	for _, removed := range []bool{true, false} {
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
			data, _, err := load(dir)
			if err != nil {
				t.Fatal(err)
			}
			client := &countingClient{}
			release := d.locks.Lock(data.key())
			done := make(chan error, 1)
			go func() {
				done <- d.unstageIfUnused(t.Context(), &driver{name: "a.example.com", NodeClient: client}, dir)
			}()
			for d.locks.Users(data.key()) < 2 { // until unstageIfUnused waits
				runtime.Gosched()
			}
			if removed {
				if err := erase(dir); err != nil {
					t.Fatal(err)
				}
			}
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if n := client.unstaged.Load(); (n == 0) != removed {
				t.Errorf("removed: %t, unstaged %d times", removed, n)
			}
		}()
	}
}

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

func (c *counting) NodeUnstageVolume(context.Context, *spec.NodeUnstageVolumeRequest, ...grpc.CallOption) (*spec.NodeUnstageVolumeResponse, error) {
	c.unstaged.Add(1)
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// A volume that is taken away from its last Pod while the sweep waits for it is unstaged once.
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
			release := d.locks.take(note.key())
			done := make(chan error, 1)
			go func() { done <- d.sweepOne(t.Context(), &driver{name: "a.example.com", NodeClient: client}, dir) }()
			for d.locks.users(note.key()) < 2 { // until the sweep waits
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

// users says how many have a lock or wait for it.
func (l *locks) users(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.held[name]; one != nil {
		return one.users
	}
	return 0
}

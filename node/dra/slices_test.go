package dra

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/node/pluginregistration"
)

// deletionRecorder records which slices were deleted and when. The first calls fail.
type deletionRecorder struct {
	fakeClient
	start     time.Time
	fail      int
	deletions chan string
}

func (w *deletionRecorder) DeleteAll(_ context.Context, gr schema.GroupResource, _ string, only fields.Set, _ metav1.DeleteOptions) error {
	if w.fail > 0 {
		w.fail--
		return errors.New("no server")
	}
	w.deletions <- time.Since(w.start).String() + " " + gr.Resource + " " + only.String()
	return nil
}

// TestSlicesOfMissingDriversAreDeleted registers and removes drivers in virtual time; other tests do that over real sockets.
func TestSlicesOfMissingDriversAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deletionRecorder{start: time.Now(), fail: 2, deletions: make(chan string, 10)}
		m, err := New(Config{Dir: t.TempDir(), Node: "a", Cluster: w, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		go m.Run(t.Context())
		set := func(name string, drivers ...*driver) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.drivers[name] = drivers
			m.driversChanged.Send()
		}
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got := ""
			select {
			case got = <-w.deletions:
			default:
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		// At its start an agent has no driver; the first two attempts fail.
		expect(3*time.Second, "3s resourceslices spec.nodeName=a")
		set("gpu", &driver{reachable: true})
		expect(time.Minute, "")
		// A driver that is replaced in time keeps its slices, also while the old one is still there.
		set("gpu", &driver{})
		expect(29*time.Second, "")
		set("gpu", &driver{}, &driver{reachable: true})
		expect(time.Minute, "")
		// The slices of a driver that has disappeared are deleted, once.
		set("gpu")
		expect(30*time.Second, "3m2s resourceslices spec.driver=gpu,spec.nodeName=a")
		set("nic", &driver{reachable: true})
		expect(time.Hour, "")
		// It returns and disappears again.
		set("gpu", &driver{reachable: true})
		synctest.Wait()
		set("gpu")
		expect(30*time.Second, "1h3m32s resourceslices spec.driver=gpu,spec.nodeName=a")
	})
}

// TestReachable checks a driver that dies without removing its socket.
func TestReachable(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "gpu")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	m := newManager(t, t.TempDir(), fakeClient{})
	if err := m.Register(t.Context(),
		pluginregistration.Info{Name: "gpu", Endpoint: path, Versions: []string{"v1.DRAPlugin"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		for m.reachable()["gpu"] != want {
			select {
			case <-m.driversChanged:
			case <-time.After(30 * time.Second):
				t.Fatalf("the driver's reachability never became %v", want)
			}
		}
		server.Stop()
	}
}

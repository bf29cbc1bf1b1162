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

// wiped says which slices were deleted, and when; it fails as often as it is told.
type wiped struct {
	shelf
	begin time.Time
	fail  int
	log   chan string
}

func (w *wiped) DeleteAll(_ context.Context, gr schema.GroupResource, _ string, only fields.Set, _ metav1.DeleteOptions) error {
	if w.fail > 0 {
		w.fail--
		return errors.New("no server")
	}
	w.log <- time.Since(w.begin).String() + " " + gr.Resource + " " + only.String()
	return nil
}

// TestWipe lets drivers register and disappear in virtual time; other tests do that over real sockets.
func TestWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wiped{begin: time.Now(), fail: 2, log: make(chan string, 10)}
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
			case got = <-w.log:
			default:
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		// An agent that starts has no driver; the server is away for two attempts.
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
		// It comes back and goes again.
		set("gpu", &driver{reachable: true})
		synctest.Wait()
		set("gpu")
		expect(30*time.Second, "1h3m32s resourceslices spec.driver=gpu,spec.nodeName=a")
	})
}

// TestReachable looks at a driver that dies without taking its socket away.
func TestReachable(t *testing.T) {
	path := filepath.Join(folder(t), "gpu")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	m := manager(t, t.TempDir(), shelf{})
	if err := m.Register(t.Context(),
		pluginregistration.Info{Name: "gpu", Endpoint: path, Versions: []string{"v1.DRAPlugin"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		for m.reachable()["gpu"] != want {
			select {
			case <-m.driversChanged:
			case <-time.After(30 * time.Second):
				t.Fatalf("that the driver can be reached never was %v", want)
			}
		}
		server.Stop()
	}
}

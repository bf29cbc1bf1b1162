package dra

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	reports "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drivers "k8s.io/kubelet/pkg/apis/dra/v1"

	"proa.dev/node/pluginregistration"
)

// healthReport returns a report from a text such as "d0 HEALTHY MESSAGE".
func healthReport(text string) *reports.DeviceHealth {
	words := strings.Fields(text)
	return &reports.DeviceHealth{
		Device:          &reports.DeviceIdentifier{PoolName: "pool", DeviceName: words[0]},
		Health:          reports.HealthStatus(reports.HealthStatus_value[words[1]]),
		LastUpdatedTime: time.Now().Unix(), Message: strings.Join(words[2:], " "),
	}
}

// managerWithClaim returns a manager with the claim c of the Pod p, whose devices are d0 and d1 of the driver gpu.
func managerWithClaim(t *testing.T, healthChanged func([]types.UID)) *Manager {
	t.Helper()
	m, err := New(Config{Dir: t.TempDir(), HealthChanged: healthChanged, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.claims["n/c"] = &Claim{UID: "c", Namespace: "n", Name: "c", Pods: []types.UID{"p"}, Prepared: true, Drivers: map[string]*Driver{
		"gpu": {Devices: []Device{{Pool: "pool", Name: "d0", Requests: []string{"big"}, CDI: []string{"example.com/gpu=0"}},
			{Pool: "pool", Name: "d1", Requests: []string{"small"}}}},
	}}
	return m
}

// deviceStatus returns the health that the status of the Pod shows for a request of the claim.
func deviceStatus(m *Manager, request string) string {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "n", "p", "p"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimName: new("c")}}
	c := &corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "mine", Request: request}}}}
	var out []string
	for _, s := range m.Status(p, c) {
		for _, h := range s.Resources {
			text := fmt.Sprintf("%s %s %s", s.Name, h.ResourceID, h.Health)
			if h.Message != nil {
				text += " (" + *h.Message + ")"
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

func TestHealthReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		m := managerWithClaim(t, func(all []types.UID) {
			if len(all) == 1 && all[0] == "p" {
				notified.Add(1)
			}
		})
		want := func(request, text string, times int32) {
			t.Helper()
			synctest.Wait()
			if got := deviceStatus(m, request); got != text || notified.Load() != times {
				t.Errorf("got %q after %d notifications, want %q after %d", got, notified.Load(), text, times)
			}
		}
		report := func(all ...string) {
			var list []*reports.DeviceHealth
			for _, x := range all {
				list = append(list, healthReport(x))
			}
			if err := m.recordHealth("gpu", list, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		want("", "claim:mine example.com/gpu=0 Unknown, claim:mine gpu/pool/d1 Unknown", 0)
		report("d0 HEALTHY", "d1 UNHEALTHY too hot")
		want("", "claim:mine example.com/gpu=0 Healthy, claim:mine gpu/pool/d1 Unhealthy (too hot)", 1)
		want("small", "claim:mine/small gpu/pool/d1 Unhealthy (too hot)", 1)
		report("d0 HEALTHY", "else HEALTHY") // no change for the Pod
		want("big", "claim:mine/big example.com/gpu=0 Healthy", 1)
		time.Sleep(20 * time.Second)
		report("d0 HEALTHY " + strings.Repeat("x", 2000))
		want("big", "claim:mine/big example.com/gpu=0 Healthy ("+strings.Repeat("x", 1021)+"...)", 2)
		time.Sleep(11 * time.Second) // the last report on d1 is more than 30 s old
		want("small", "claim:mine/small gpu/pool/d1 Unknown", 3)
		m.dropReports("gpu")
		want("", "claim:mine example.com/gpu=0 Unknown, claim:mine gpu/pool/d1 Unknown", 4)
	})
}

// healthReporter is a driver that reports the health of its devices.
type healthReporter struct {
	drivers.UnimplementedDRAPluginServer
	reports.UnimplementedDRAResourceHealthServer
	queue chan *reports.DeviceHealth
}

func (r *healthReporter) NodeWatchResources(_ *reports.NodeWatchResourcesRequest,
	s grpc.ServerStreamingServer[reports.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case d := <-r.queue:
			if err := s.Send(&reports.NodeWatchResourcesResponse{Devices: []*reports.DeviceHealth{d}}); err != nil {
				return err
			}
		}
	}
}

// TestHealthReportsOverSocket receives health reports of a driver over a real socket.
func TestHealthReportsOverSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dra") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &healthReporter{queue: make(chan *reports.DeviceHealth)}
	s := grpc.NewServer()
	drivers.RegisterDRAPluginServer(s, r)
	reports.RegisterDRAResourceHealthServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	changed := make(chan []types.UID, 8)
	m := managerWithClaim(t, func(all []types.UID) { changed <- all })
	if err := m.Register(t.Context(),
		pluginregistration.Info{Name: "gpu", Endpoint: socket,
			Versions: []string{drivers.DRAPluginService, reports.DRAResourceHealthService}}); err != nil {
		t.Fatal(err)
	}
	r.queue <- healthReport("d0 UNHEALTHY")
	if all := <-changed; len(all) != 1 || deviceStatus(m, "big") != "claim:mine/big example.com/gpu=0 Unhealthy" {
		t.Errorf("%v %s", all, deviceStatus(m, "big"))
	}
	m.Deregister(t.Context(), "gpu")
	if all := <-changed; len(all) != 1 || deviceStatus(m, "big") != "claim:mine/big example.com/gpu=0 Unknown" {
		t.Errorf("%v %s", all, deviceStatus(m, "big"))
	}
}

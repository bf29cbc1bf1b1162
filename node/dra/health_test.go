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

// said is a report such as "d0 HEALTHY".
func said(text string) *reports.DeviceHealth {
	words := strings.Fields(text)
	return &reports.DeviceHealth{
		Device:          &reports.DeviceIdentifier{PoolName: "pool", DeviceName: words[0]},
		Health:          reports.HealthStatus(reports.HealthStatus_value[words[1]]),
		LastUpdatedTime: time.Now().Unix(), Message: strings.Join(words[2:], " "),
	}
}

// having is a manager with the claim c of the Pod p, whose devices are d0 and d1 of the driver gpu.
func having(t *testing.T, told func([]types.UID)) *Manager {
	t.Helper()
	m, err := New(Config{Dir: t.TempDir(), HealthChanged: told, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.claims["n/c"] = &Claim{UID: "c", Namespace: "n", Name: "c", Pods: []types.UID{"p"}, Prepared: true, Drivers: map[string]*Driver{
		"gpu": {Devices: []Device{{Pool: "pool", Name: "d0", Requests: []string{"big"}, CDI: []string{"example.com/gpu=0"}},
			{Pool: "pool", Name: "d1", Requests: []string{"small"}}}},
	}}
	return m
}

func shown(m *Manager, request string) string {
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

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		m := having(t, func(all []types.UID) {
			if len(all) == 1 && all[0] == "p" {
				told.Add(1)
			}
		})
		want := func(request, text string, times int32) {
			t.Helper()
			synctest.Wait()
			if got := shown(m, request); got != text || told.Load() != times {
				t.Errorf("got %q after %d tellings, want %q after %d", got, told.Load(), text, times)
			}
		}
		say := func(all ...string) {
			var list []*reports.DeviceHealth
			for _, x := range all {
				list = append(list, said(x))
			}
			if err := m.recordHealth("gpu", list, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		want("", "claim:mine example.com/gpu=0 Unknown, claim:mine gpu/pool/d1 Unknown", 0)
		say("d0 HEALTHY", "d1 UNHEALTHY too hot")
		want("", "claim:mine example.com/gpu=0 Healthy, claim:mine gpu/pool/d1 Unhealthy (too hot)", 1)
		want("small", "claim:mine/small gpu/pool/d1 Unhealthy (too hot)", 1)
		say("d0 HEALTHY", "else HEALTHY") // nothing new for the Pod
		want("big", "claim:mine/big example.com/gpu=0 Healthy", 1)
		time.Sleep(20 * time.Second)
		say("d0 HEALTHY " + strings.Repeat("x", 2000))
		want("big", "claim:mine/big example.com/gpu=0 Healthy ("+strings.Repeat("x", 1021)+"...)", 2)
		time.Sleep(11 * time.Second) // d1 was not heard of for more than 30 s
		want("small", "claim:mine/small gpu/pool/d1 Unknown", 3)
		m.dropReports("gpu")
		want("", "claim:mine example.com/gpu=0 Unknown, claim:mine gpu/pool/d1 Unknown", 4)
	})
}

// reporter is a driver that reports on its devices.
type reporter struct {
	drivers.UnimplementedDRAPluginServer
	reports.UnimplementedDRAResourceHealthServer
	says chan *reports.DeviceHealth
}

func (r *reporter) NodeWatchResources(_ *reports.NodeWatchResourcesRequest,
	s grpc.ServerStreamingServer[reports.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case d := <-r.says:
			if err := s.Send(&reports.NodeWatchResourcesResponse{Devices: []*reports.DeviceHealth{d}}); err != nil {
				return err
			}
		}
	}
}

// TestReportsOfADriver hears them over a real socket.
func TestReportsOfADriver(t *testing.T) {
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
	r := &reporter{says: make(chan *reports.DeviceHealth)}
	s := grpc.NewServer()
	drivers.RegisterDRAPluginServer(s, r)
	reports.RegisterDRAResourceHealthServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	told := make(chan []types.UID, 8)
	m := having(t, func(all []types.UID) { told <- all })
	if err := m.Register(t.Context(),
		pluginregistration.Info{Name: "gpu", Endpoint: socket,
			Versions: []string{drivers.DRAPluginService, reports.DRAResourceHealthService}}); err != nil {
		t.Fatal(err)
	}
	r.says <- said("d0 UNHEALTHY")
	if all := <-told; len(all) != 1 || shown(m, "big") != "claim:mine/big example.com/gpu=0 Unhealthy" {
		t.Errorf("%v %s", all, shown(m, "big"))
	}
	m.Deregister(t.Context(), "gpu")
	if all := <-told; len(all) != 1 || shown(m, "big") != "claim:mine/big example.com/gpu=0 Unknown" {
		t.Errorf("%v %s", all, shown(m, "big"))
	}
}

package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"proa.dev/node/topology"
)

// fakePlugin is a device plugin that records its calls.
type fakePlugin struct {
	plugins.UnimplementedDevicePluginServer
	resource, socket string
	options          *plugins.DevicePluginOptions
	preferred        []string
	list             chan []*plugins.Device
	server           *grpc.Server

	mu  sync.Mutex
	log []string
}

func (v *fakePlugin) record(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log = append(v.log, fmt.Sprintf(format, args...))
}

func (v *fakePlugin) GetDevicePluginOptions(context.Context, *plugins.Empty) (*plugins.DevicePluginOptions, error) {
	return v.options, nil
}

func (v *fakePlugin) ListAndWatch(_ *plugins.Empty, s grpc.ServerStreamingServer[plugins.ListAndWatchResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case list := <-v.list:
			if err := s.Send(&plugins.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

func (v *fakePlugin) GetPreferredAllocation(_ context.Context, r *plugins.PreferredAllocationRequest) (*plugins.PreferredAllocationResponse,
	error) {
	v.record("prefer %d", r.ContainerRequests[0].AllocationSize)
	return &plugins.PreferredAllocationResponse{
		ContainerResponses: []*plugins.ContainerPreferredAllocationResponse{{DeviceIDs: v.preferred}}}, nil
}

func (v *fakePlugin) Allocate(_ context.Context, r *plugins.AllocateRequest) (*plugins.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	v.record("allocate %v", ids)
	if slices.Contains(ids, "broken") {
		return nil, fmt.Errorf("it is broken")
	}
	return &plugins.AllocateResponse{ContainerResponses: []*plugins.ContainerAllocateResponse{{
		Envs:        map[string]string{"GPU": strings.Join(ids, ",")},
		Mounts:      []*plugins.Mount{{HostPath: "/lib/gpu", ContainerPath: "/gpu", ReadOnly: true}},
		Devices:     []*plugins.DeviceSpec{{HostPath: "/dev/gpu", ContainerPath: "/dev/gpu", Permissions: "rw"}},
		Annotations: map[string]string{"a": "b"}, CdiDevices: []*plugins.CDIDevice{{Name: "example.com/gpu=" + ids[0]}},
	}}}, nil
}

func (v *fakePlugin) PreStartContainer(_ context.Context, r *plugins.PreStartContainerRequest) (*plugins.PreStartContainerResponse, error) {
	v.record("start %v", r.DevicesIds)
	return &plugins.PreStartContainerResponse{}, nil
}

func (v *fakePlugin) take() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := strings.Join(v.log, "; ")
	v.log = nil
	return out
}

// serveAndRegister serves the plugin and registers it.
func (v *fakePlugin) serveAndRegister(t *testing.T, dir string) error {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, v.socket))
	if err != nil {
		t.Fatal(err)
	}
	v.server = grpc.NewServer()
	plugins.RegisterDevicePluginServer(v.server, v)
	go func() { _ = v.server.Serve(l) }()
	t.Cleanup(v.server.Stop)
	return register(t, dir, &plugins.RegisterRequest{Version: plugins.Version, Endpoint: v.socket, ResourceName: v.resource})
}

func register(t *testing.T, dir string, r *plugins.RegisterRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	_, err = plugins.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true))
	return err
}

func device(id string, nodes ...int64) *plugins.Device {
	d := &plugins.Device{ID: id, Health: plugins.Healthy}
	for _, n := range nodes {
		if d.Topology == nil {
			d.Topology = &plugins.TopologyInfo{}
		}
		d.Topology.Nodes = append(d.Topology.Nodes, &plugins.NUMANode{ID: n})
	}
	return d
}

// podWithDevices returns a Pod whose containers request devices, such as "x=1 y=2". Init containers come before a bar.
func podWithDevices(uid, text string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "n"}}
	before, after, found := strings.Cut(text, "|")
	if !found {
		before, after = "", text
	}
	read := func(text string) (out []corev1.Container) {
		for _, w := range strings.Fields(text) {
			name, n, _ := strings.Cut(w, "=")
			out = append(out, corev1.Container{Name: name,
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": apiresource.MustParse(n)}}})
		}
		return out
	}
	p.Spec.InitContainers, p.Spec.Containers = read(before), read(after)
	return p
}

func startManager(t *testing.T, dir string) (*Manager, func()) {
	t.Helper()
	m, err := New(Config{Dir: dir, Nodes: []int{0, 1}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	// Plugins register once the socket is open; their sockets from before are removed.
	eventually(t, "the socket for registrations", func() bool { _, err := os.Stat(filepath.Join(dir, "kubelet.sock")); return err == nil })
	return m, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

func deviceCounts(m *Manager) string {
	capacity, allocatable, gone, _ := m.Counts()
	a, b := capacity["example.com/gpu"], allocatable["example.com/gpu"]
	return fmt.Sprintf("%s/%s %v", b.String(), a.String(), gone)
}

func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestDevicePlugin covers the lifecycle of a plugin, over real sockets.
func TestDevicePlugin(t *testing.T) {
	dir := shortTempDir(t)
	m, stop := startManager(t, dir)
	if _, _, _, fresh := m.Counts(); !fresh {
		t.Error("a new manager has state")
	}
	v := &fakePlugin{resource: "example.com/gpu", socket: "gpu.sock", list: make(chan []*plugins.Device, 8),
		options: &plugins.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, preferred: []string{"c"}}
	if err := v.serveAndRegister(t, dir); err != nil {
		t.Fatal(err)
	}
	v.list <- []*plugins.Device{device("a", 0), device("b", 0), device("c", 1), {ID: "unhealthy", Health: plugins.Unhealthy}}
	eventually(t, "four devices", func() bool { return deviceCounts(m) == "3/4 []" })

	p := podWithDevices("p", "x=1")
	if h := m.Hints(p, &p.Spec.Containers[0])["example.com/gpu"]; fmt.Sprint(h) != "[{0 true} {1 true} {0-1 false}]" {
		t.Errorf("hints %v", h)
	}
	if err := m.Allocate(t.Context(), p, &p.Spec.Containers[0], topology.Hint{Nodes: topology.MaskOf(0)}); err != nil {
		t.Fatal(err)
	}
	if got := v.take(); got != "prefer 1; allocate [a]" {
		t.Error(got) // the preferred device is on another NUMA node
	}
	g, err := m.Grant(t.Context(), p, &p.Spec.Containers[0])
	if err != nil || g.Env["GPU"] != "a" || g.Mounts[0].HostPath != "/lib/gpu" || g.Devices[0].Permissions != "rw" ||
		g.CDI[0] != "example.com/gpu=a" || g.Annotations["a"] != "b" {
		t.Errorf("%+v %v", g, err)
	}
	if got := v.take(); got != "start [a]" {
		t.Error(got)
	}
	q := podWithDevices("q", "x=1")
	if err := m.Allocate(t.Context(), q, &q.Spec.Containers[0], topology.Hint{}); err != nil || v.take() != "prefer 1; allocate [c]" {
		t.Error(err)
	}
	big := podWithDevices("r", "x=2")
	if err := m.Allocate(t.Context(), big, &big.Spec.Containers[0], topology.Hint{}); err == nil || err.Error() != "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1" {
		t.Error(err)
	}

	// The pod resources API.
	socket := filepath.Join(dir, "res.sock")
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- ServeResources(ctx, PodResources{Socket: socket, Pods: func() []*corev1.Pod { return []*corev1.Pod{p, q} }, Devices: m})
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(), &podresources.ListPodResourcesRequest{},
		grpc.WaitForReady(true))
	if err != nil || len(r.PodResources) != 2 || r.PodResources[0].Containers[0].Devices[0].DeviceIds[0] != "a" ||
		r.PodResources[0].Containers[0].Devices[0].Topology.Nodes[0].ID != 0 {
		t.Errorf("%v %v", r, err)
	}
	all, err := podresources.NewPodResourcesListerClient(conn).GetAllocatableResources(t.Context(),
		&podresources.AllocatableResourcesRequest{})
	if err != nil || len(all.Devices) != 3 {
		t.Errorf("%v %v", all, err)
	}
	if _, err := podresources.NewPodResourcesListerClient(conn).Get(t.Context(),
		&podresources.GetPodResourcesRequest{PodName: "no", PodNamespace: "n"}); err == nil ||
		!strings.Contains(err.Error(), "pod no in namespace n not found") {
		t.Error(err)
	}
	conn.Close()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}

	// After a restart of the agent allocations are restored, and no device is allocated twice.
	stop()
	m, stop = startManager(t, dir)
	defer stop()
	if got := deviceCounts(m); got != "0/0 []" {
		t.Errorf("before the plugin is back: %s", got)
	}
	if err := m.Allocate(t.Context(), p, &p.Spec.Containers[0], topology.Hint{}); err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/gpu" {
		t.Error(err)
	}
	eventually(t, "the socket is removed", func() bool { _, err := os.Stat(filepath.Join(dir, v.socket)); return err != nil })
	v.server.Stop()
	v.take()
	if err := v.serveAndRegister(t, dir); err != nil {
		t.Fatal(err)
	}
	v.list <- []*plugins.Device{device("a", 0), device("b", 0), device("c", 1)}
	eventually(t, "three devices", func() bool { return deviceCounts(m) == "3/3 []" })
	if g, err := m.Grant(t.Context(), p, &p.Spec.Containers[0]); err != nil || g.Env["GPU"] != "a" || v.take() != "start [a]" {
		t.Errorf("%+v %v", g, err)
	}
	if st := m.Status("p", "x"); len(st) != 1 || st[0].Resources[0].Health != corev1.ResourceHealthStatusHealthy {
		t.Errorf("%v", st)
	}
	// A device becomes unhealthy, and the plugin disappears.
	v.list <- []*plugins.Device{{ID: "a", Health: plugins.Unhealthy}, device("b", 0), device("c", 1)}
	eventually(t, "an unhealthy device", func() bool {
		return m.Status("p", "x")[0].Resources[0].Health == corev1.ResourceHealthStatusUnhealthy
	})
	if err := m.Allocate(t.Context(), p, &p.Spec.Containers[0], topology.Hint{}); err == nil ||
		!strings.HasPrefix(err.Error(), "previously allocated devices are no longer healthy") {
		t.Error(err)
	}
	v.server.Stop()
	eventually(t, "no device is allocatable", func() bool { return deviceCounts(m) == "0/3 []" })
	if held := m.Held(); held.Name("example.com/gpu", apiresource.DecimalSI).Value() != 2 {
		t.Errorf("%v", held)
	}
	if err := m.Release("p"); err != nil || len(m.Status("p", "x")) != 0 {
		t.Error(err)
	}
}

func TestInvalidRegistrations(t *testing.T) {
	dir := shortTempDir(t)
	_, stop := startManager(t, dir)
	defer stop()
	for _, x := range []struct {
		r    *plugins.RegisterRequest
		want string
	}{
		{&plugins.RegisterRequest{Version: "v9", Endpoint: "a", ResourceName: "example.com/a"}, `requested API version "v9" is not supported by kubelet. Supported versions are ["v1beta1"]`},
		{&plugins.RegisterRequest{Version: "v1beta1", Endpoint: "a", ResourceName: "cpu"}, `the ResourceName "cpu" is invalid`},
		{&plugins.RegisterRequest{Version: "v1beta1", Endpoint: "../../a", ResourceName: "example.com/a"}, `is no name of a socket`},
	} {
		if err := register(t, dir, x.r); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %s", err, x.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Run("containers reuse devices of init containers", func(t *testing.T) {
		m := &Manager{table: newTable()}
		m.table.update("example.com/gpu", []Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true}, {ID: "c", Healthy: true}})
		p := podWithDevices("p", "i=2 | x=1 y=1 z=1")
		m.table.set("p", "i", "example.com/gpu", allocation{IDs: []string{"a", "b"}})
		var got []string
		for i := range p.Spec.Containers {
			q := m.requests(p, &p.Spec.Containers[i], topology.Hint{})[0]
			c, err := m.table.choose(q)
			if err != nil {
				t.Fatal(err)
			}
			ids := c.finish(1, nil)
			m.table.set("p", p.Spec.Containers[i].Name, q.name, allocation{IDs: ids})
			got = append(got, ids...)
		}
		if fmt.Sprint(got) != "[a b c]" {
			t.Error(got)
		}
	})
	t.Run("a changed request", func(t *testing.T) {
		x := newTable()
		x.update("r", []Device{{ID: "a", Healthy: true}})
		x.set("p", "c", "r", allocation{IDs: []string{"a"}})
		if _, err := x.check(request{uid: "p", container: "c", name: "r", n: 2}); err == nil ||
			err.Error() != `pod "p" container "c" changed request for resource "r" from 1 to 2` {
			t.Error(err)
		}
	})
	t.Run("plugin does not return", func(t *testing.T) {
		x := newTable()
		now := time.Unix(0, 0)
		x.update("r", []Device{{ID: "a", Healthy: true}})
		x.pluginLost("r", now)
		if c, gone := x.counts(now.Add(time.Minute), removedAfter); c["r"] != (count{1, 0}) || len(gone) != 0 {
			t.Error(c, gone)
		}
		if c, gone := x.counts(now.Add(time.Hour), removedAfter); len(c) != 0 || len(gone) != 1 {
			t.Error(c, gone)
		}
	})
	t.Run("Pods affected by an unhealthy device", func(t *testing.T) {
		x := newTable()
		x.update("r", []Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true}})
		x.set("p", "c", "r", allocation{IDs: []string{"a"}})
		x.set("q", "c", "r", allocation{IDs: []string{"b"}})
		if got := x.update("r", []Device{{ID: "a"}, {ID: "b", Healthy: true}}); fmt.Sprint(got) != "[p]" {
			t.Error(got)
		}
		if got := x.update("r", nil); fmt.Sprint(got) != "[p q]" {
			t.Error(got)
		}
	})
}

func TestDamagedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, checkpoint), []byte(`{"data":{},"checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "drain the node and remove") {
		t.Error(err)
	}
}

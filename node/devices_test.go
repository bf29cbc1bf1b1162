package node_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drivers "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"proa.dev/kinds/lib/gr"
)

// gpus is a device plugin.
type gpus struct {
	plugins.UnimplementedDevicePluginServer
	list chan []*plugins.Device
	card string // a file that containers get to see
}

func (*gpus) GetDevicePluginOptions(context.Context, *plugins.Empty) (*plugins.DevicePluginOptions, error) {
	return &plugins.DevicePluginOptions{}, nil
}

func (g *gpus) ListAndWatch(_ *plugins.Empty, s grpc.ServerStreamingServer[plugins.ListAndWatchResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case list := <-g.list:
			if err := s.Send(&plugins.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

func (g *gpus) Allocate(_ context.Context, r *plugins.AllocateRequest) (*plugins.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	return &plugins.AllocateResponse{ContainerResponses: []*plugins.ContainerAllocateResponse{{
		Envs: map[string]string{"GPU": strings.Join(ids, ","), "SIDE": "plugin"}, Annotations: map[string]string{"gpu.example": "yes"},
		Mounts:     []*plugins.Mount{{HostPath: g.card, ContainerPath: "/card", ReadOnly: true}},
		Devices:    []*plugins.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "r"}},
		CdiDevices: []*plugins.CDIDevice{{Name: "test.proa.dev/gpu=" + ids[0]}},
	}}}, nil
}

// register registers the plugin with an agent, with healthy devices or, after a bar, unhealthy ones.
func (g *gpus) register(r *room, ids ...string) {
	r.Helper()
	dir := filepath.Join(r.config.Dir, "device-plugins")
	serve(r, filepath.Join(dir, "gpu.sock"), func(s *grpc.Server) { plugins.RegisterDevicePluginServer(s, g) })
	conn := dial(r, filepath.Join(dir, "kubelet.sock"))
	if _, err := plugins.NewRegistrationClient(conn).Register(r.Context(), &plugins.RegisterRequest{
		Version: plugins.Version, Endpoint: "gpu.sock", ResourceName: "test.proa.dev/gpu",
	}, grpc.WaitForReady(true)); err != nil {
		r.Fatal(err)
	}
	g.tell(r, ids...)
}

func (g *gpus) tell(r *room, ids ...string) {
	r.Helper()
	var list []*plugins.Device
	for _, id := range ids {
		d := &plugins.Device{ID: strings.TrimPrefix(id, "-"), Health: plugins.Healthy}
		if strings.HasPrefix(id, "-") {
			d.Health = plugins.Unhealthy
		}
		list = append(list, d)
	}
	g.list <- list
	well := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.HasPrefix(id, "-") }))
	r.until("the Node tells of its devices", func() bool {
		n, err := r.Get(r.Context(), gr.Nodes, "", "a", "")
		if err != nil {
			r.Fatal(err)
		}
		st := n.(*corev1.Node).Status
		all, can := st.Capacity["test.proa.dev/gpu"], st.Allocatable["test.proa.dev/gpu"]
		return all.Value() == int64(len(ids)) && can.Value() == int64(well)
	})
}

// serve serves something at a socket for as long as the test runs, or until the socket is taken over.
func serve(r *room, socket string, register func(*grpc.Server)) {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		r.Fatal(err)
	}
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		r.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	r.Cleanup(s.Stop)
}

func dial(r *room, socket string) *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// cdi writes CDI specs for the runtime: each device sets a variable of the environment.
func cdi(t *testing.T, kind string, names ...string) {
	t.Helper()
	const dir = "/var/run/cdi"
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var devices []string
	for _, name := range names {
		devices = append(devices, fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["CDI_%s=here"]}}`, name, strings.ToUpper(name)))
	}
	f, err := os.CreateTemp(dir, "proa-*.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Remove(f.Name())
		if missing != nil {
			_ = os.Remove(dir)
		}
	})
	if _, err := fmt.Fprintf(f, `{"cdiVersion": "0.6.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(devices, ",")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func health(p *corev1.Pod) string {
	var out []string
	for _, s := range p.Status.ContainerStatuses[0].AllocatedResourcesStatus {
		for _, x := range s.Resources {
			out = append(out, fmt.Sprintf("%s %s %s", s.Name, x.ResourceID, x.Health))
		}
	}
	return strings.Join(out, ", ")
}

// TestDevicePlugins allocates the devices of a plugin to containers, across restarts of the agent and of the plugin.
func TestDevicePlugins(t *testing.T) {
	cdi(t, "test.proa.dev/gpu", "g1", "g2")
	r := newRoom(t, nil)
	g := &gpus{list: make(chan []*plugins.Device), card: filepath.Join(r.Dir, "card")}
	if err := os.WriteFile(g.card, []byte("a card\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	g.register(r, "g1", "g2")
	r.run("one", `env: [{name: SIDE, value: spec}]
    resources: {limits: {test.proa.dev/gpu: 1}}`)
	p := r.await("one", "runs", running)
	r.expect("one", "env GPU=g1\n", "env SIDE=spec\n", "env CDI_G1=here\n")
	if got := health(p); got != "test.proa.dev/gpu g1 Healthy" {
		t.Errorf("the status says %q", got)
	}
	r.run("look", `args: [cat, /card, /dev/gpu0]
    resources: {limits: {test.proa.dev/gpu: 1}}`)
	r.expect("look", "a card\n")
	r.await("look", "has seen the device", func(p *corev1.Pod) bool {
		st := p.Status.ContainerStatuses[0]
		end := st.State.Terminated
		if end == nil {
			end = st.LastTerminationState.Terminated
		}
		return end != nil && end.ExitCode == 0
	})
	r.remove("look")

	resources := podresources.NewPodResourcesListerClient(dial(r, filepath.Join(r.config.Dir, "pod-resources", "kubelet.sock")))
	list, err := resources.List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil || len(list.PodResources) != 1 || list.PodResources[0].Containers[0].Devices[0].DeviceIds[0] != "g1" {
		t.Errorf("the pod resources API says %v, %v", list, err)
	}
	all, err := resources.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil || len(all.Devices) != 2 {
		t.Errorf("the pod resources API says %v, %v", all, err)
	}

	r.run("greedy", `resources: {limits: {test.proa.dev/gpu: 2}}`)
	r.rejected("greedy", "UnexpectedAdmissionError",
		"Pod was rejected: Allocate failed due to requested number of devices unavailable for test.proa.dev/gpu. Requested: 2, Available: 1, which is unexpected")

	g.tell(r, "-g1", "g2")
	r.await("one", "shows that its device is broken", func(p *corev1.Pod) bool { return health(p) == "test.proa.dev/gpu g1 Unhealthy" })

	// After a restart of the agent the container keeps running, and keeps its device.
	r.restart()
	g.register(r, "g1", "g2")
	same := r.await("one", "shows that its device is well", func(p *corev1.Pod) bool { return health(p) == "test.proa.dev/gpu g1 Healthy" })
	if same.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container was restarted")
	}
	r.run("two", `resources: {limits: {test.proa.dev/gpu: 1}}`)
	r.await("two", "runs", running)
	r.expect("two", "env GPU=g2\n")
	r.remove("one")
	r.remove("two")
	r.run("three", `resources: {limits: {test.proa.dev/gpu: 2}}`)
	r.await("three", "runs", running)
	r.expect("three", "env GPU=g1,g2\n")
}

// cards is a DRA driver.
type cards struct {
	drivers.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	socket string
	calls  chan string
}

func (c *cards) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: "cards.proa.dev", Endpoint: c.socket,
		SupportedVersions: []string{drivers.DRAPluginService}}, nil
}

func (c *cards) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse,
	error) {
	c.calls <- fmt.Sprintf("registered %t", s.PluginRegistered)
	return &registration.RegistrationStatusResponse{}, nil
}

func (c *cards) NodePrepareResources(_ context.Context, r *drivers.NodePrepareResourcesRequest) (*drivers.NodePrepareResourcesResponse,
	error) {
	out := &drivers.NodePrepareResourcesResponse{Claims: map[string]*drivers.NodePrepareResourceResponse{}}
	for _, claim := range r.Claims {
		c.calls <- "prepare"
		out.Claims[claim.Uid] = &drivers.NodePrepareResourceResponse{Devices: []*drivers.Device{{
			RequestNames: []string{"card"}, PoolName: "a", DeviceName: "k1", CdiDeviceIds: []string{"test.proa.dev/card=k1"},
		}}}
	}
	return out, nil
}

func (c *cards) NodeUnprepareResources(_ context.Context,
	r *drivers.NodeUnprepareResourcesRequest) (*drivers.NodeUnprepareResourcesResponse, error) {
	out := &drivers.NodeUnprepareResourcesResponse{Claims: map[string]*drivers.NodeUnprepareResourceResponse{}}
	for _, claim := range r.Claims {
		c.calls <- "unprepare"
		out.Claims[claim.Uid] = &drivers.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

// TestClaims gives a device to a Pod by a claim that has been allocated.
func TestClaims(t *testing.T) {
	cdi(t, "test.proa.dev/card", "k1")
	r := newRoom(t, nil)
	c := &cards{socket: filepath.Join(r.Dir, "dra.sock"), calls: make(chan string, 100)}
	call := func(want string) {
		t.Helper()
		r.until("the driver hears: "+want, func() bool {
			select {
			case got := <-c.calls:
				if got != want {
					t.Fatalf("the driver heard %q, want %q", got, want)
				}
				return true
			default:
				return false
			}
		})
	}
	serve(r, c.socket, func(s *grpc.Server) { drivers.RegisterDRAPluginServer(s, c) })
	serve(r, filepath.Join(r.config.Dir, "plugins_registry", "cards.sock"),
		func(s *grpc.Server) { registration.RegisterRegistrationServer(s, c) })
	call("registered true")
	create(r, gr.DeviceClasses, &resourcev1.DeviceClass{}, `metadata: {name: cards}`)
	publish := func() {
		create(r, gr.ResourceSlices, &resourcev1.ResourceSlice{}, `
metadata: {name: a-cards}
spec: {driver: cards.proa.dev, nodeName: a, pool: {name: a, generation: 1, resourceSliceCount: 1}, devices: [{name: k1}]}`)
	}
	publish()
	create(r, gr.ResourceClaimTemplates, &resourcev1.ResourceClaimTemplate{}, `
metadata: {name: card, namespace: default}
spec: {spec: {devices: {requests: [{name: card, exactly: {deviceClassName: cards}}]}}}`)
	ask := func(name string) {
		create(r, gr.Pods, &corev1.Pod{}, fmt.Sprintf(`
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimTemplateName: card}]
  containers: [{name: c, image: "proa.test/tool:1", args: [show, -stay], resources: {claims: [{name: mine}]}}]`, name))
	}
	ask("one")
	p := r.await("one", "runs", running)
	call("prepare")
	r.expect("one", "env CDI_K1=here\n")
	if got := health(p); got != "claim:mine test.proa.dev/card=k1 Unknown" {
		t.Errorf("the status says %q", got)
	}
	resources := podresources.NewPodResourcesListerClient(dial(r, filepath.Join(r.config.Dir, "pod-resources", "kubelet.sock")))
	list, err := resources.List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil || list.PodResources[0].Containers[0].DynamicResources[0].ClaimResources[0].DeviceName != "k1" {
		t.Errorf("the pod resources API says %v, %v", list, err)
	}
	// Another agent knows what is prepared, and puts it away for the next one. What devices there are drivers tell it anew.
	r.restart()
	call("registered true")
	r.until("the slice of the agent before is gone", func() bool {
		_, err := r.Get(r.Context(), gr.ResourceSlices, "", "a-cards", "")
		return apierrors.IsNotFound(err)
	})
	publish()
	r.remove("one")
	call("unprepare")
	ask("two")
	r.await("two", "runs", running)
	call("prepare")
	// A driver that is away when the Pod ends is asked when it is back; the Pod waits for it.
	r.remove("two")
	call("unprepare")
}

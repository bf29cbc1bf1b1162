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

// gpuPlugin is a device plugin for GPUs.
type gpuPlugin struct {
	plugins.UnimplementedDevicePluginServer
	list chan []*plugins.Device
	card string // a file that is mounted into containers
}

func (*gpuPlugin) GetDevicePluginOptions(context.Context, *plugins.Empty) (*plugins.DevicePluginOptions, error) {
	return &plugins.DevicePluginOptions{}, nil
}

func (g *gpuPlugin) ListAndWatch(_ *plugins.Empty, s grpc.ServerStreamingServer[plugins.ListAndWatchResponse]) error {
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

func (g *gpuPlugin) Allocate(_ context.Context, r *plugins.AllocateRequest) (*plugins.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	return &plugins.AllocateResponse{ContainerResponses: []*plugins.ContainerAllocateResponse{{
		Envs: map[string]string{"GPU": strings.Join(ids, ","), "SIDE": "plugin"}, Annotations: map[string]string{"gpu.example": "yes"},
		Mounts:     []*plugins.Mount{{HostPath: g.card, ContainerPath: "/card", ReadOnly: true}},
		Devices:    []*plugins.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "r"}},
		CdiDevices: []*plugins.CDIDevice{{Name: "test.proa.dev/gpu=" + ids[0]}},
	}}}, nil
}

// register registers the plugin with the agent, and reports devices.
func (g *gpuPlugin) register(r *testNode, ids ...string) {
	r.Helper()
	dir := filepath.Join(r.config.Dir, "device-plugins")
	// An agent that starts removes the sockets of plugins before it makes its own.
	r.eventually("the agent lets plugins register", func() bool {
		_, err := os.Stat(filepath.Join(dir, "kubelet.sock"))
		return err == nil
	})
	serveSocket(r, filepath.Join(dir, "gpu.sock"), func(s *grpc.Server) { plugins.RegisterDevicePluginServer(s, g) })
	conn := dialSocket(r, filepath.Join(dir, "kubelet.sock"))
	if _, err := plugins.NewRegistrationClient(conn).Register(r.Context(), &plugins.RegisterRequest{
		Version: plugins.Version, Endpoint: "gpu.sock", ResourceName: "test.proa.dev/gpu",
	}, grpc.WaitForReady(true)); err != nil {
		r.Fatal(err)
	}
	g.report(r, ids...)
}

// report reports devices, and waits until the Node has them. A leading dash marks an unhealthy one.
func (g *gpuPlugin) report(r *testNode, ids ...string) {
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
	healthy := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.HasPrefix(id, "-") }))
	r.eventually("the Node has the devices", func() bool {
		n, err := r.Get(r.Context(), gr.Nodes, "", "a", "")
		if err != nil {
			r.Fatal(err)
		}
		st := n.(*corev1.Node).Status
		all, can := st.Capacity["test.proa.dev/gpu"], st.Allocatable["test.proa.dev/gpu"]
		return all.Value() == int64(len(ids)) && can.Value() == int64(healthy)
	})
}

// serveSocket runs a gRPC server at a socket until the end of the test.
func serveSocket(r *testNode, socket string, register func(*grpc.Server)) {
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

func dialSocket(r *testNode, socket string) *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// writeCDISpecs writes a CDI spec for the runtime, whose devices each set an environment variable.
func writeCDISpecs(t *testing.T, kind string, names ...string) {
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

func deviceHealth(p *corev1.Pod) string {
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
	writeCDISpecs(t, "test.proa.dev/gpu", "g1", "g2")
	r := startTestNode(t, nil)
	g := &gpuPlugin{list: make(chan []*plugins.Device), card: filepath.Join(r.Dir, "card")}
	if err := os.WriteFile(g.card, []byte("a card\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	g.register(r, "g1", "g2")
	r.runPod("one", `env: [{name: SIDE, value: spec}]
    resources: {limits: {test.proa.dev/gpu: 1}}`)
	p := r.awaitPod("one", "runs", running)
	r.expectLog("one", "env GPU=g1\n", "env SIDE=spec\n", "env CDI_G1=here\n")
	if got := deviceHealth(p); got != "test.proa.dev/gpu g1 Healthy" {
		t.Errorf("the device health in the status is %q", got)
	}
	r.runPod("look", `args: [cat, /card, /dev/gpu0]
    resources: {limits: {test.proa.dev/gpu: 1}}`)
	r.expectLog("look", "a card\n")
	r.awaitPod("look", "has seen the device", func(p *corev1.Pod) bool {
		st := p.Status.ContainerStatuses[0]
		end := st.State.Terminated
		if end == nil {
			end = st.LastTerminationState.Terminated
		}
		return end != nil && end.ExitCode == 0
	})
	r.removePod("look")

	resources := podresources.NewPodResourcesListerClient(dialSocket(r, filepath.Join(r.config.Dir, "pod-resources", "kubelet.sock")))
	var list *podresources.ListPodResourcesResponse
	var err error
	r.eventually("only one Pod has resources", func() bool {
		list, err = resources.List(t.Context(), &podresources.ListPodResourcesRequest{})
		return err == nil && len(list.PodResources) == 1
	})
	if err != nil || len(list.PodResources) != 1 || list.PodResources[0].Containers[0].Devices[0].DeviceIds[0] != "g1" {
		t.Errorf("the pod resources API returns %v, %v", list, err)
	}
	all, err := resources.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil || len(all.Devices) != 2 {
		t.Errorf("the pod resources API returns %v, %v", all, err)
	}

	r.runPod("greedy", `resources: {limits: {test.proa.dev/gpu: 2}}`)
	r.awaitRejection("greedy", "UnexpectedAdmissionError",
		"Pod was rejected: Allocate failed due to requested number of devices unavailable for test.proa.dev/gpu. Requested: 2, Available: 1, which is unexpected")

	g.report(r, "-g1", "g2")
	r.awaitPod("one", "shows that its device is unhealthy", func(p *corev1.Pod) bool { return deviceHealth(p) == "test.proa.dev/gpu g1 Unhealthy" })

	// After a restart of the agent the container keeps running, and keeps its device.
	r.restartAgent()
	g.register(r, "g1", "g2")
	same := r.awaitPod("one", "shows that its device is healthy",
		func(p *corev1.Pod) bool { return deviceHealth(p) == "test.proa.dev/gpu g1 Healthy" })
	if same.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container was restarted")
	}
	r.runPod("two", `resources: {limits: {test.proa.dev/gpu: 1}}`)
	r.awaitPod("two", "runs", running)
	r.expectLog("two", "env GPU=g2\n")
	r.removePod("one")
	r.removePod("two")
	r.runPod("three", `resources: {limits: {test.proa.dev/gpu: 2}}`)
	r.awaitPod("three", "runs", running)
	r.expectLog("three", "env GPU=g1,g2\n")
}

// cardDriver is a DRA driver that records its calls.
type cardDriver struct {
	drivers.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	socket string
	calls  chan string
}

func (c *cardDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: "cards.proa.dev", Endpoint: c.socket,
		SupportedVersions: []string{drivers.DRAPluginService}}, nil
}

func (c *cardDriver) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	c.calls <- fmt.Sprintf("registered %t", s.PluginRegistered)
	return &registration.RegistrationStatusResponse{}, nil
}

func (c *cardDriver) NodePrepareResources(_ context.Context, r *drivers.NodePrepareResourcesRequest) (*drivers.NodePrepareResourcesResponse,
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

func (c *cardDriver) NodeUnprepareResources(_ context.Context,
	r *drivers.NodeUnprepareResourcesRequest) (*drivers.NodeUnprepareResourcesResponse, error) {
	out := &drivers.NodeUnprepareResourcesResponse{Claims: map[string]*drivers.NodeUnprepareResourceResponse{}}
	for _, claim := range r.Claims {
		c.calls <- "unprepare"
		out.Claims[claim.Uid] = &drivers.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

// TestResourceClaims gives Pods a device by ResourceClaims.
func TestResourceClaims(t *testing.T) {
	writeCDISpecs(t, "test.proa.dev/card", "k1")
	r := startTestNode(t, nil)
	c := &cardDriver{socket: filepath.Join(r.Dir, "dra.sock"), calls: make(chan string, 100)}
	wantCall := func(want string) {
		t.Helper()
		r.eventually("the driver is called: "+want, func() bool {
			select {
			case got := <-c.calls:
				if got != want {
					t.Fatalf("the driver was called with %q, want %q", got, want)
				}
				return true
			default:
				return false
			}
		})
	}
	serveSocket(r, c.socket, func(s *grpc.Server) { drivers.RegisterDRAPluginServer(s, c) })
	serveSocket(r, filepath.Join(r.config.Dir, "plugins_registry", "cards.sock"),
		func(s *grpc.Server) { registration.RegisterRegistrationServer(s, c) })
	wantCall("registered true")
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
	createPod := func(name string) {
		create(r, gr.Pods, &corev1.Pod{}, fmt.Sprintf(`
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimTemplateName: card}]
  containers: [{name: c, image: "proa.test/tool:1", args: [show, -stay], resources: {claims: [{name: mine}]}}]`, name))
	}
	createPod("one")
	p := r.awaitPod("one", "runs", running)
	wantCall("prepare")
	r.expectLog("one", "env CDI_K1=here\n")
	if got := deviceHealth(p); got != "claim:mine test.proa.dev/card=k1 Unknown" {
		t.Errorf("the device health in the status is %q", got)
	}
	resources := podresources.NewPodResourcesListerClient(dialSocket(r, filepath.Join(r.config.Dir, "pod-resources", "kubelet.sock")))
	list, err := resources.List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil || list.PodResources[0].Containers[0].DynamicResources[0].ClaimResources[0].DeviceName != "k1" {
		t.Errorf("the pod resources API returns %v, %v", list, err)
	}
	// A new agent knows the prepared claims, and unprepares them. Drivers publish their devices again.
	r.restartAgent()
	wantCall("registered true")
	r.eventually("the slice of the former agent is deleted", func() bool {
		_, err := r.Get(r.Context(), gr.ResourceSlices, "", "a-cards", "")
		return apierrors.IsNotFound(err)
	})
	publish()
	r.removePod("one")
	wantCall("unprepare")
	createPod("two")
	r.awaitPod("two", "runs", running)
	wantCall("prepare")
	// Unpreparing follows the end of the Pod.
	r.removePod("two")
	wantCall("unprepare")
}

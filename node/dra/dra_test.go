package dra

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	drivers "k8s.io/kubelet/pkg/apis/dra/v1"
	beta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"proa.dev/kinds/kind"
	"proa.dev/node/pluginregistration"
)

// fakeDriver is a DRA driver that records its calls.
type fakeDriver struct {
	drivers.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	name          string
	versions      []string
	endpoint      string
	registrations chan string

	mu     sync.Mutex
	log    []string
	refuse string
	skip   bool
}

func (v *fakeDriver) NodePrepareResources(_ context.Context, r *drivers.NodePrepareResourcesRequest) (*drivers.NodePrepareResourcesResponse,
	error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := &drivers.NodePrepareResourcesResponse{Claims: map[string]*drivers.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		v.log = append(v.log, "prepare "+c.Name)
		if v.skip {
			continue
		}
		out.Claims[c.Uid] = &drivers.NodePrepareResourceResponse{Error: v.refuse, Devices: []*drivers.Device{
			{PoolName: "pool", DeviceName: "d0", RequestNames: []string{"big"}, CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-0"}},
			{PoolName: "pool", DeviceName: "d1", RequestNames: []string{"small"},
				CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-1"}},
		}}
	}
	return out, nil
}

func (v *fakeDriver) NodeUnprepareResources(_ context.Context,
	r *drivers.NodeUnprepareResourcesRequest) (*drivers.NodeUnprepareResourcesResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := &drivers.NodeUnprepareResourcesResponse{Claims: map[string]*drivers.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		v.log = append(v.log, "unprepare "+c.Name)
		out.Claims[c.Uid] = &drivers.NodeUnprepareResourceResponse{Error: v.refuse}
	}
	return out, nil
}

func (v *fakeDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: v.name, Endpoint: v.endpoint, SupportedVersions: v.versions}, nil
}

func (v *fakeDriver) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	v.registrations <- s.Error
	return &registration.RegistrationStatusResponse{}, nil
}

func (v *fakeDriver) set(refuse string, skip bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refuse, v.skip = refuse, skip
}

func (v *fakeDriver) take() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := strings.Join(v.log, ", ")
	v.log = nil
	return out
}

// serve serves the driver and its registration socket.
func (v *fakeDriver) serve(t *testing.T, registry string) (stop func()) {
	t.Helper()
	v.endpoint = filepath.Join(registry, v.name+"-dra.sock.d")
	v.registrations = make(chan string, 8)
	serve := func(path string, add func(*grpc.Server)) *grpc.Server {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		add(s)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return s
	}
	if err := os.MkdirAll(filepath.Join(registry, "own"), 0o700); err != nil {
		t.Fatal(err)
	}
	v.endpoint = filepath.Join(registry, "own", v.name)
	dra := serve(v.endpoint, func(s *grpc.Server) { drivers.RegisterDRAPluginServer(s, v) })
	reg := serve(filepath.Join(registry, v.name+".sock"), func(s *grpc.Server) { registration.RegisterRegistrationServer(s, v) })
	return func() {
		reg.Stop()
		dra.Stop()
	}
}

// fakeClient returns ResourceClaims by namespace and name.
type fakeClient map[string]*resourcev1.ResourceClaim

func (s fakeClient) Get(_ context.Context, gr schema.GroupResource, namespace, name, _ string) (kind.Object, error) {
	if c := s[namespace+"/"+name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (fakeClient) DeleteAll(context.Context, schema.GroupResource, string, fields.Set, metav1.DeleteOptions) error {
	return nil
}

func claim(name string, driver string, pods ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: driver, Pool: "pool", Device: "d0", Request: "big"}, {Driver: driver, Pool: "pool", Device: "d1", Request: "small"},
		}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	return c
}

// podWithClaims returns a Pod with claims, all of which its container uses.
func podWithClaims(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name)}}
	c := corev1.Container{Name: "c"}
	for _, x := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: x, ResourceClaimName: new(x)})
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: x})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

func newManager(t *testing.T, dir string, s fakeClient) *Manager {
	t.Helper()
	m, err := New(Config{Dir: dir, Cluster: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// startRegistry runs the plugin registration for a manager.
func startRegistry(t *testing.T, dir string, m *Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	r := &pluginregistration.Registry{Dir: dir, Handlers: map[string]pluginregistration.Handler{pluginregistration.Claims: m},
		Log: slog.New(slog.DiscardHandler)}
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func awaitRegistration(t *testing.T, v *fakeDriver) string {
	t.Helper()
	select {
	case s := <-v.registrations:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("the driver was not notified of its registration")
		return ""
	}
}

// TestPrepareClaims covers the lifecycle of claims, with a driver over real sockets.
func TestPrepareClaims(t *testing.T) {
	state, sockets := t.TempDir(), shortTempDir(t)
	s := fakeClient{"n/shared": claim("shared", "gpu", "p", "q"), "n/own": claim("own", "gpu", "p"), "n/foreign": claim("foreign", "gpu", "x"),
		"n/unallocated": claim("unallocated", "gpu", "p")}
	s["n/unallocated"].Status.Allocation = nil
	m := newManager(t, state, s)
	p, q := podWithClaims("p", "shared", "own"), podWithClaims("q", "shared")
	if err := m.Prepare(t.Context(), p); err == nil || err.Error() != "prepare dynamic resources: DRA driver gpu is not registered" {
		t.Error(err)
	}
	if m.Uses("p") {
		t.Error("a claim that was not prepared is recorded")
	}
	stop := startRegistry(t, sockets, m)
	v := &fakeDriver{name: "gpu", versions: []string{"v1.DRAPlugin"}}
	v.serve(t, sockets)
	if got := awaitRegistration(t, v); got != "" {
		t.Fatal(got)
	}
	for _, x := range [][2]string{
		{"missing", `prepare dynamic resources: fetch ResourceClaim missing: resourceclaims.resource.k8s.io "missing" not found`},
		{"foreign", "prepare dynamic resources: pod p (p) is not allowed to use ResourceClaim foreign (uid-foreign)"},
		{"unallocated", "prepare dynamic resources: ResourceClaim unallocated: not allocated"},
	} {
		if err := m.Prepare(t.Context(), podWithClaims("p", x[0])); err == nil || err.Error() != x[1] {
			t.Errorf("got %v\nwant %s", err, x[1])
		}
	}
	v.set("device failed", false)
	if err := m.Prepare(t.Context(), q); err == nil || err.Error() != "prepare dynamic resources: NodePrepareResources failed for ResourceClaim shared: device failed" {
		t.Error(err)
	}
	v.set("", true)
	if err := m.Prepare(t.Context(), q); err == nil || err.Error() != "prepare dynamic resources: NodePrepareResources skipped 1 ResourceClaims" {
		t.Error(err)
	}
	if _, err := m.CDI(q, &q.Spec.Containers[0]); err == nil {
		t.Error("a claim that is not prepared has devices")
	}
	v.set("", false)
	v.take()
	for range 2 { // the second time nothing is prepared
		for _, x := range []*corev1.Pod{q, p} {
			if err := m.Prepare(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := v.take(); got != "prepare shared, prepare own" {
		t.Error(got)
	}
	if ids, err := m.CDI(p, &p.Spec.Containers[0]); err != nil || fmt.Sprint(ids) != "[example.com/gpu=shared-0 example.com/gpu=shared-1 example.com/gpu=own-0 example.com/gpu=own-1]" {
		t.Error(ids, err)
	}
	part := corev1.Container{Name: "c",
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "own", Request: "small"}}}}
	if ids, err := m.CDI(p, &part); err != nil || fmt.Sprint(ids) != "[example.com/gpu=own-1]" {
		t.Error(ids, err)
	}
	if r := m.Resources(p, &part); len(r) != 1 || r[0].ClaimName != "own" || len(r[0].ClaimResources) != 2 ||
		r[0].ClaimResources[0].DeviceName != "d0" {
		t.Error(r)
	}

	// After a restart of the agent prepared claims are restored.
	stop()
	m = newManager(t, state, s)
	defer startRegistry(t, sockets, m)()
	if got := awaitRegistration(t, v); got != "" {
		t.Fatal(got)
	}
	if ids, err := m.CDI(q, &q.Spec.Containers[0]); err != nil || len(ids) != 2 {
		t.Error(ids, err)
	}
	// A claim is unprepared with its last Pod.
	if err := m.Unprepare(t.Context(), "q"); err != nil || v.take() != "" {
		t.Error(err)
	}
	v.set("busy", false)
	if err := m.Unprepare(t.Context(), "p"); err == nil || !strings.HasPrefix(err.Error(), "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim ") {
		t.Error(err)
	}
	if !m.Uses("p") {
		t.Error("a claim that could not be unprepared is no longer recorded")
	}
	v.set("", false)
	v.take()
	if err := m.UnprepareStale(t.Context(), func(types.UID) bool { return false }); err != nil ||
		v.take() != "unprepare own, unprepare shared" {
		t.Error(err)
	}
	if m.Uses("p") {
		t.Error("a claim is left")
	}
}

func TestDriverVersions(t *testing.T) {
	sockets := shortTempDir(t)
	m := newManager(t, t.TempDir(), fakeClient{"n/a": claim("a", "old", "p")})
	defer startRegistry(t, sockets, m)()
	unsupported := &fakeDriver{name: "none", versions: []string{"v1alpha9.Node"}}
	unsupported.serve(t, sockets)
	if got := awaitRegistration(t, unsupported); !strings.Contains(got, `none of services supported by the plugin (["v1alpha9.Node"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`) {
		t.Error(got)
	}
	// The older protocol has the same messages under another name.
	path := filepath.Join(sockets, "beta")
	l, err := net.Listen("unix", path+".d")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	beta.RegisterDRAPluginServer(server, betaDriver{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	if err := m.Register(t.Context(),
		pluginregistration.Info{Name: "old", Endpoint: path + ".d", Versions: []string{beta.DRAPluginService}}); err != nil {
		t.Fatal(err)
	}
	p := podWithClaims("p", "a")
	if err := m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if ids, err := m.CDI(p, &p.Spec.Containers[0]); err != nil || fmt.Sprint(ids) != "[example.com/old=1]" {
		t.Error(ids, err)
	}
	m.Deregister(t.Context(), "old")
	if err := m.Unprepare(t.Context(), "p"); err == nil || err.Error() != "unprepare dynamic resources: DRA driver old is not registered" {
		t.Error(err)
	}
}

// betaDriver is a driver with the v1beta1 API.
type betaDriver struct {
	beta.UnimplementedDRAPluginServer
}

func (betaDriver) NodePrepareResources(_ context.Context, r *beta.NodePrepareResourcesRequest) (*beta.NodePrepareResourcesResponse, error) {
	return &beta.NodePrepareResourcesResponse{Claims: map[string]*beta.NodePrepareResourceResponse{
		r.Claims[0].Uid: {Devices: []*beta.Device{{PoolName: "p", DeviceName: "d", CdiDeviceIds: []string{"example.com/old=1"}}}},
	}}, nil
}

func TestClaimTemplates(t *testing.T) {
	p := podWithClaims("p")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "t", ResourceClaimTemplateName: new("tmpl")}}
	s := fakeClient{"n/p-t": claim("p-t", "gpu", "p")}
	m := newManager(t, t.TempDir(), s)
	if err := m.Prepare(t.Context(), p); err == nil ||
		err.Error() != `prepare dynamic resources: pod "n/p": ResourceClaim not created yet` {
		t.Error(err)
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "t", ResourceClaimName: new("p-t")}}
	if err := m.Prepare(t.Context(), p); err == nil || err.Error() != "prepare dynamic resources: ResourceClaim n/p-t was not created for Pod n/p (Pod is not owner)" {
		t.Error(err)
	}
	p.Status.ResourceClaimStatuses[0].ResourceClaimName = nil // no claim is created from the template
	if err := m.Prepare(t.Context(), p); err != nil {
		t.Error(err)
	}
	c := claim("c", "gpu", "p")
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].SkipNodeOperations = []resourcev1.SkipNodeOperation{resourcev1.SkipNodeOperationAll}
	}
	s["n/c"] = c
	if err := m.Prepare(t.Context(), podWithClaims("p", "c")); err != nil {
		t.Errorf("a driver is called although node operations are skipped: %v", err)
	}
	if err := m.Unprepare(t.Context(), "p"); err != nil {
		t.Error(err)
	}
}

func TestDamagedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, checkpoint), []byte(`{"Data":{},"Checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "please drain node and remove DRA state file") {
		t.Error(err)
	}
}

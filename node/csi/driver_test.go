package csi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"proa.dev/node/volume/mounts"
)

// fakeDriver is a CSI driver whose volumes are folders. It records its calls.
type fakeDriver struct {
	spec.UnimplementedNodeServer
	name, store  string
	capabilities []spec.NodeServiceCapability_RPC_Type
	versions     []string

	mu            sync.Mutex
	calls         []string
	fail          map[string]error // by the name of the call
	registrations []string         // the results of its registrations
}

// serve serves the driver, and its registration socket in a folder. It stops at the end of the test, or by the returned function.
func (f *fakeDriver) serve(t *testing.T, registry string) (stop func()) {
	t.Helper()
	listen := func(socket string) net.Listener {
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	endpoint := filepath.Join(f.store, "csi.sock")
	driver, registrationServer := grpc.NewServer(), grpc.NewServer()
	spec.RegisterNodeServer(driver, f)
	registration.RegisterRegistrationServer(registrationServer, &registrar{f: f, endpoint: endpoint})
	var all sync.WaitGroup
	l := listen(endpoint)
	all.Go(func() { _ = driver.Serve(l) })
	r := listen(filepath.Join(registry, f.name+"-reg.sock"))
	all.Go(func() { _ = registrationServer.Serve(r) })
	stop = sync.OnceFunc(func() { registrationServer.Stop(); driver.Stop(); all.Wait() })
	t.Cleanup(stop)
	return stop
}

// registrar answers at the registration socket, as the node-driver-registrar does.
type registrar struct {
	registration.UnimplementedRegistrationServer
	f        *fakeDriver
	endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.f.name, Endpoint: r.endpoint,
		SupportedVersions: r.f.versions}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.f.registrations = append(r.f.registrations, fmt.Sprint(s.PluginRegistered, " ", s.Error))
	return &registration.RegistrationStatusResponse{}, nil
}

// call records a call, and returns the error that the test has set for it.
func (f *fakeDriver) call(name, format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(name+" "+fmt.Sprintf(format, args...)))
	return f.fail[name]
}

// take returns the calls since the last take.
func (f *fakeDriver) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.calls
	f.calls = nil
	return out
}

func (f *fakeDriver) setFail(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = map[string]error{name: err}
}

func (f *fakeDriver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{
		NodeId: "id-of-n1", MaxVolumesPerNode: 7,
		AccessibleTopology: &spec.Topology{Segments: map[string]string{"topology." + f.name + "/rack": "r1"}},
	}, nil
}

func (f *fakeDriver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range f.capabilities {
		out.Capabilities = append(out.Capabilities,
			&spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

func formatMap(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

func (f *fakeDriver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := f.call("stage", "%s %s %s [%s] {%s} %s", r.VolumeId, r.VolumeCapability.AccessMode.Mode,
		r.VolumeCapability.GetMount().GetFsType(), formatMap(r.Secrets), formatMap(r.VolumeContext),
		formatMap(r.PublishContext)); err != nil {
		return nil, err
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &spec.NodeStageVolumeResponse{}, nil
	}
	return &spec.NodeStageVolumeResponse{}, f.bind(filepath.Join(f.store, r.VolumeId), r.StagingTargetPath)
}

func (f *fakeDriver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := f.call("publish", "%s ro=%v group=%s [%s] {%s}", r.VolumeId, r.Readonly, r.VolumeCapability.GetMount().GetVolumeMountGroup(),
		formatMap(r.Secrets), formatMap(r.VolumeContext)); err != nil {
		return nil, err
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &spec.NodePublishVolumeResponse{}, os.WriteFile(r.TargetPath, nil, 0o600)
	}
	from := r.StagingTargetPath
	if from == "" {
		from = filepath.Join(f.store, r.VolumeId)
	}
	return &spec.NodePublishVolumeResponse{}, f.bind(from, r.TargetPath)
}

func (f *fakeDriver) bind(from, to string) error {
	is, err := mounts.IsMountPoint(to)
	if is || err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	return mounts.Bind(from, to, mounts.ReadWrite)
}

func (f *fakeDriver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := f.call("unpublish", "%s", r.VolumeId); err != nil {
		return nil, err
	}
	return &spec.NodeUnpublishVolumeResponse{}, errors.Join(mounts.UnmountAll(r.TargetPath), mounts.Remove(r.TargetPath))
}

func (f *fakeDriver) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	if err := f.call("unstage", "%s", r.VolumeId); err != nil {
		return nil, err
	}
	return &spec.NodeUnstageVolumeResponse{}, mounts.UnmountAll(r.StagingTargetPath)
}

func (f *fakeDriver) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	if r.VolumePath == "" {
		return nil, status.Error(codes.InvalidArgument, "no path")
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: r.CapacityRange.RequiredBytes}, f.call("expand", "%s %d", r.VolumeId,
		r.CapacityRange.RequiredBytes)
}

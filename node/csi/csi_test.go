package csi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/clustertest"
	"proa.dev/node/csi"
	"proa.dev/node/objects"
	"proa.dev/node/pluginregistration"
	"proa.dev/node/volume"
	"proa.dev/node/volume/mounts"
)

// testCluster is a cluster with one node, and the parts of its agent that CSI drivers register with.
type testCluster struct {
	*clustertest.TestCluster
	t         *testing.T
	dir       string
	refs      *objects.Refs
	stopAgent func()
	drivers   *csi.Drivers
	*volume.Volumes
}

func startCluster(t *testing.T) *testCluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	dir, err := os.MkdirTemp("", "csi") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	w := &testCluster{t: t, dir: dir, TestCluster: clustertest.Start(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1",
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
	})}
	w.startAgent()
	t.Cleanup(func() {
		w.stopAgent()
		if err := mounts.UnmountAll(dir); err != nil {
			t.Error(err)
		}
		if err := mounts.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

// startAgent starts an agent without any state in memory.
func (w *testCluster) startAgent() {
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	w.refs = objects.New(w.Agent, log)
	w.drivers = csi.New(csi.Config{Dir: w.dir, Node: "n1", Client: w.Agent, Refs: w.refs, Events: w, Log: log})
	w.Volumes = volume.New(volume.Config{
		Dir: w.dir, Node: "n1", Client: w.Agent, Refs: w.refs, Events: w, Drivers: w.drivers, Log: log,
		Allocatable: func() corev1.ResourceList { return corev1.ResourceList{} },
	})
	ctx, stop := context.WithCancel(w.Context())
	var all sync.WaitGroup
	registry := &pluginregistration.Registry{Dir: filepath.Join(w.dir, "plugins_registry"),
		Handlers: map[string]pluginregistration.Handler{pluginregistration.Storage: w.drivers}, Log: log}
	all.Go(func() {
		if err := registry.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	v := w.Volumes
	all.Go(func() { v.Run(ctx) })
	w.stopAgent = sync.OnceFunc(func() { stop(); all.Wait(); w.refs.Close(); w.drivers.Close() })
}

// registerDriver registers a driver, and waits until the CSINode names it.
func (w *testCluster) registerDriver(f *fakeDriver, o *storagev1.CSIDriverSpec) (stop func()) {
	w.Helper()
	if o != nil {
		w.Create(gr.CSIDrivers, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: *o})
	}
	f.store = filepath.Join(w.dir, "store-"+f.name)
	f.versions = []string{"1.0.0"}
	stop = f.serve(w.t, filepath.Join(w.dir, "plugins_registry"))
	w.Until("the driver to be registered", func() bool { return slices.Contains(w.registered(), f.name) })
	return stop
}

// registered returns the drivers that the CSINode names.
func (w *testCluster) registered() (out []string) {
	o, err := w.Cluster.Client.Get(w.Context(), gr.CSINodes, "", "n1", "")
	if err != nil {
		return nil
	}
	for _, d := range o.(*storagev1.CSINode).Spec.Drivers {
		out = append(out, d.Name)
	}
	return out
}

func (w *testCluster) mount(p *corev1.Pod) {
	w.Helper()
	if err := w.Mount(w.Context(), p); err != nil {
		w.Fatal(err, w.Events())
	}
}

func (w *testCluster) unmount(p *corev1.Pod) {
	w.Helper()
	if err := w.Unmount(w.Context(), p.UID); err != nil {
		w.Fatal(err)
	}
}

// createVolume creates a PersistentVolume, and a claim that is bound to it.
func (w *testCluster) createVolume(name string, pv corev1.PersistentVolumeSpec) {
	w.Helper()
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	pv.Capacity, pv.ClaimRef, pv.StorageClassName = size, &corev1.ObjectReference{Namespace: "default", Name: name}, "by-hand"
	if len(pv.AccessModes) == 0 {
		pv.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	w.Create(gr.PersistentVolumes, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: pv})
	w.Create(gr.PersistentVolumeClaims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: pv.AccessModes, StorageClassName: new("by-hand"), VolumeName: name, VolumeMode: pv.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	})
	w.Until("the claim to be bound", func() bool { return w.claim(name).Status.Phase == corev1.ClaimBound })
}

func (w *testCluster) claim(name string) *corev1.PersistentVolumeClaim {
	w.Helper()
	o, err := w.Cluster.Client.Get(w.Context(), gr.PersistentVolumeClaims, "default", name, "")
	if err != nil {
		w.Fatal(err)
	}
	return o.(*corev1.PersistentVolumeClaim)
}

func (w *testCluster) wantCalls(f *fakeDriver, calls ...string) {
	w.Helper()
	if got := f.take(); !slices.Equal(got, calls) {
		w.Errorf("the driver was called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(calls, "\n"))
	}
}

const (
	canStage      = spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	canExpand     = spec.NodeServiceCapability_RPC_EXPAND_VOLUME
	canMountGroup = spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
)

func TestRegistration(t *testing.T) {
	w := startCluster(t)
	if err := w.drivers.CreateCSINode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.registered(); len(got) != 0 {
		t.Errorf("the CSINode names %v", got)
	}
	f := &fakeDriver{name: "a.example.com"}
	stop := w.registerDriver(f, nil)
	o, err := w.Cluster.Client.Get(t.Context(), gr.CSINodes, "", "n1", "")
	if err != nil {
		t.Fatal(err)
	}
	n := o.(*storagev1.CSINode)
	d := n.Spec.Drivers[0]
	if d.NodeID != "id-of-n1" || *d.Allocatable.Count != 7 || !slices.Equal(d.TopologyKeys, []string{"topology.a.example.com/rack"}) ||
		len(n.OwnerReferences) != 1 || n.OwnerReferences[0].Kind != "Node" {
		t.Errorf("the CSINode is %+v", n)
	}
	node := func() *corev1.Node {
		o, err := w.Cluster.Client.Get(t.Context(), gr.Nodes, "", "n1", "")
		if err != nil {
			t.Fatal(err)
		}
		return o.(*corev1.Node)
	}
	if got := node(); got.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"a.example.com":"id-of-n1"}` ||
		got.Labels["topology.a.example.com/rack"] != "r1" {
		t.Errorf("the Node is %+v", got.ObjectMeta)
	}
	times := func(n int) func() bool {
		return func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return slices.Equal(f.registrations, slices.Repeat([]string{"true "}, n))
		}
	}
	w.Until("the driver to be notified", times(1))
	// The agent restarts: the driver stays registered.
	w.stopAgent()
	if got := w.registered(); !slices.Equal(got, []string{"a.example.com"}) {
		t.Errorf("without the agent the CSINode names %v", got)
	}
	w.startAgent()
	w.Until("the driver to be notified again", times(2))
	stop()
	w.Until("the driver to be removed from the CSINode", func() bool { return len(w.registered()) == 0 })
	w.Until("the driver to be removed from the Node", func() bool { return node().Annotations["csi.volume.kubernetes.io/nodeid"] == "" })
	old := &fakeDriver{name: "old.example.com", versions: []string{"0.3.0"}, store: filepath.Join(w.dir, "store-old")}
	defer old.serve(t, filepath.Join(w.dir, "plugins_registry"))()
	w.Until("the refusal", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		return len(old.registrations) > 0 &&
			strings.HasPrefix(old.registrations[0], "false validation failed for CSI Driver old.example.com")
	})
}

func TestPersistentVolume(t *testing.T) {
	w := startCluster(t)
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage}}
	w.registerDriver(f, &storagev1.CSIDriverSpec{AttachRequired: new(false), PodInfoOnMount: new(true),
		FSGroupPolicy: new(storagev1.FileFSGroupPolicy)})
	w.Create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		StringData: map[string]string{"key": "secret-value"}})
	w.createVolume("vol", corev1.PersistentVolumeSpec{MountOptions: nil,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: f.name, VolumeHandle: "h1", FSType: "ext4", VolumeAttributes: map[string]string{"k": "v"},
			NodeStageSecretRef: &corev1.SecretReference{Namespace: "default", Name: "s"},
		}}})
	const podSpec = `{securityContext: {fsGroup: 42}, containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`
	a, b := w.Pod("a", podSpec), w.Pod("b", podSpec)
	w.mount(a)
	w.wantCalls(f, "stage h1 SINGLE_NODE_WRITER ext4 [key=secret-value] {k=v}",
		fmt.Sprintf("publish h1 ro=false group= [] {csi.storage.k8s.io/ephemeral=false,csi.storage.k8s.io/pod.name=a,csi.storage.k8s.io/pod.namespace=default,csi.storage.k8s.io/pod.uid=%s,csi.storage.k8s.io/serviceAccount.name=default,k=v}", a.UID))
	w.mount(a)
	w.wantCalls(f) // it is mounted already
	binds, _, err := w.Binds(t.Context(), a, &a.Spec.Containers[0], nil)
	if err != nil || binds[0].HostPath != filepath.Join(w.dir, "pods", string(a.UID), "volumes/kubernetes.io~csi/vol/mount") {
		t.Errorf("%v, %v", binds, err)
	}
	if info, err := os.Stat(filepath.Join(f.store, "h1")); err != nil || info.Mode()&fs.ModeSetgid == 0 {
		t.Errorf("the volume does not belong to the fsGroup: %v, %v", info, err)
	}
	w.mount(b)
	if got := f.take(); len(got) != 2 || !strings.HasPrefix(got[0], "stage h1") {
		t.Errorf("got %q", got)
	}
	w.unmount(a)
	w.wantCalls(f, "unpublish h1")
	// An agent without state in memory unmounts the rest.
	w.stopAgent()
	w.startAgent()
	w.Until("the driver to be registered again", func() bool { return w.Unmount(t.Context(), b.UID) == nil })
	w.wantCalls(f, "unpublish h1", "unstage h1")
	if remaining, err := filepath.Glob(filepath.Join(w.dir, "plugins/kubernetes.io/csi", f.name, "*")); err != nil || len(remaining) > 0 {
		t.Errorf("remaining: %v, %v", remaining, err)
	}
	if got := w.InUse(); len(got) != 0 {
		t.Errorf("in use: %v", got)
	}
}

func TestFailuresOfADriver(t *testing.T) {
	w := startCluster(t)
	w.createVolume("vol",
		corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "a.example.com",
				VolumeHandle: "h1"}}})
	p := w.Pod("a", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	done := make(chan error, 1)
	go func() { done <- w.Mount(t.Context(), p) }()
	w.Until("the Event about the missing driver", func() bool {
		return w.Recorded(`Warning FailedMount MountVolume.MountDevice failed for volume "vol" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name a.example.com not found in the list of registered CSI drivers`)
	})
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage}}
	f.setFail("stage", status.Error(codes.Internal, "no power"))
	w.registerDriver(f, &storagev1.CSIDriverSpec{AttachRequired: new(false)})
	w.Wake(p.UID)
	w.Until("the Event about a failed stage", func() bool {
		return w.Recorded(`Warning FailedMount MountVolume.MountDevice failed for volume "vol" : rpc error: code = Internal desc = no power`)
	})
	f.setFail("publish", status.Error(codes.Internal, "no room"))
	w.Until("the Event about a failed publish", func() bool {
		return w.Recorded(`Warning FailedMount MountVolume.SetUp failed for volume "vol" : rpc error: code = Internal desc = no room`)
	})
	f.setFail("", nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	f.setFail("unpublish", status.Error(codes.Unavailable, "busy"))
	if err := w.Unmount(t.Context(), p.UID); err == nil {
		t.Error("the volumes were unmounted although the driver failed")
	}
	if is, err := mounts.IsMountPoint(filepath.Join(w.dir, "pods", string(p.UID), "volumes/kubernetes.io~csi/vol/mount")); err != nil ||
		!is {
		t.Errorf("the volume is not mounted any more although the driver failed: %v", err)
	}
	f.setFail("unstage", status.Error(codes.Unavailable, "busy"))
	if err := w.Unmount(t.Context(), p.UID); err == nil {
		t.Error("the volumes were unmounted although the driver failed")
	}
	f.setFail("", nil)
	w.unmount(p)
	if remaining, err := w.PodUIDs(t.Context()); err != nil || len(remaining) != 0 {
		t.Errorf("remaining: %v, %v", remaining, err)
	}
}

// TestInlineVolume covers an inline volume, of a driver that applies the fsGroup itself and wants tokens.
func TestInlineVolume(t *testing.T) {
	w := startCluster(t)
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage, canMountGroup}}
	w.registerDriver(f, &storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		TokenRequests:        []storagev1.TokenRequest{{Audience: "vault"}}, RequiresRepublish: new(true),
	})
	p := w.Pod("a", `{securityContext: {fsGroup: 42}, containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, csi: {driver: a.example.com, readOnly: true, volumeAttributes: {x: "y"}}}]}`)
	w.mount(p)
	got := f.take()
	if len(got) != 1 || !strings.Contains(got[0], "ro=true group=42 [] {csi.storage.k8s.io/serviceAccount.tokens={\"vault\":{\"token\":\"") || !strings.HasSuffix(got[0], ",x=y}") {
		t.Errorf("got %q", got)
	}
	w.unmount(p)
	if got := f.take(); len(got) != 1 || !strings.HasPrefix(got[0], "unpublish csi-") {
		t.Errorf("got %q", got)
	}
	w.createVolume("vol",
		corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: f.name,
				VolumeHandle: "h1"}}})
	p = w.Pod("b", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	w.Fails(`Warning FailedMount MountVolume.SetUp failed for volume "vol" : kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Persistent" not supported by driver a.example.com (only supports ["Ephemeral"])`,
		func(ctx context.Context) error { return w.Mount(ctx, p) })
}

// TestAttachedVolume checks that a volume is mounted after it was attached, and reported as in use.
func TestAttachedVolume(t *testing.T) {
	w := startCluster(t)
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage, canExpand}}
	w.registerDriver(f, &storagev1.CSIDriverSpec{AttachRequired: new(true)})
	w.createVolume("vol",
		corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: f.name,
				VolumeHandle: "h1"}}})
	p := w.Pod("a", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	done := make(chan error, 1)
	go func() { done <- w.Mount(t.Context(), p) }()
	attachments, err := w.Cluster.Client.View(t.Context(), gr.VolumeAttachments)
	if err != nil {
		t.Fatal(err)
	}
	// The controller creates the VolumeAttachment; the test sets its status as the driver would.
	w.Until("the volume to be attached", func() bool {
		for o := range attachments.List("") {
			a := o.(*storagev1.VolumeAttachment).DeepCopy()
			a.Status.Attached, a.Status.AttachmentMetadata = true, map[string]string{"slot": "3"}
			_, err := w.Cluster.Client.Update(t.Context(), gr.VolumeAttachments, a, "status")
			return err == nil
		}
		return false
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := f.take(); len(got) != 2 || got[0] != "stage h1 SINGLE_NODE_WRITER  [] {} slot=3" {
		t.Errorf("got %q", got)
	}
	want := []corev1.UniqueVolumeName{"kubernetes.io/csi/a.example.com^h1"}
	if got := w.InUse(); !slices.Equal(got, want) {
		t.Errorf("in use: %v", got)
	}
	w.stopAgent()
	w.startAgent() // also without state in memory
	if got := w.InUse(); !slices.Equal(got, want) {
		t.Errorf("in use after a restart: %v", got)
	}
	w.Until("the driver to be registered again", func() bool { return w.Mount(t.Context(), p) == nil })
	w.wantCalls(f)
	// The volume was expanded.
	o, err := w.Cluster.Client.Get(t.Context(), gr.PersistentVolumes, "", "vol", "")
	if err != nil {
		t.Fatal(err)
	}
	pv := o.(*corev1.PersistentVolume)
	pv.Spec.Capacity["storage"] = resource.MustParse("2Gi")
	if _, err := w.Cluster.Client.Update(t.Context(), gr.PersistentVolumes, pv, ""); err != nil {
		t.Fatal(err)
	}
	w.stopAgent()
	w.startAgent()
	w.Until("the driver to be registered again", func() bool { return w.Mount(t.Context(), p) == nil })
	w.wantCalls(f, "expand h1 2147483648")
	w.Until("the capacity of the claim", func() bool { q := w.claim("vol").Status.Capacity["storage"]; return q.String() == "2Gi" })
	w.unmount(p)
	if got := w.InUse(); len(got) != 0 {
		t.Errorf("in use: %v", got)
	}
}

func TestBlockVolume(t *testing.T) {
	w := startCluster(t)
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage}}
	w.registerDriver(f, &storagev1.CSIDriverSpec{AttachRequired: new(false)})
	w.createVolume("vol", corev1.PersistentVolumeSpec{VolumeMode: new(corev1.PersistentVolumeBlock),
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: f.name, VolumeHandle: "h1"}}})
	p := w.Pod("a", `{containers: [{name: c, volumeDevices: [{name: d, devicePath: /dev/x}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	w.mount(p)
	w.wantCalls(f, "stage h1 SINGLE_NODE_WRITER  [] {}", "publish h1 ro=false group= [] {}")
	_, devices, err := w.Binds(t.Context(), p, &p.Spec.Containers[0], nil)
	if err != nil || len(devices) != 1 ||
		devices[0].HostPath != filepath.Join(w.dir, "pods", string(p.UID), "volumeDevices/kubernetes.io~csi/vol") ||
		devices[0].Permissions != "mrw" {
		t.Errorf("%v, %v", devices, err)
	}
	if to, err := filepath.EvalSymlinks(devices[0].HostPath); err != nil ||
		to != filepath.Join(w.dir, "plugins/kubernetes.io/csi/volumeDevices/publish/vol", string(p.UID)) {
		t.Errorf("the device is %s, %v", to, err)
	}
	w.unmount(p)
	w.wantCalls(f, "unpublish h1", "unstage h1")
	if _, err := os.Lstat(filepath.Join(w.dir, "plugins/kubernetes.io/csi/volumeDevices/publish/vol")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	wrong := w.Pod("b", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	if err := w.Mount(t.Context(), wrong); err == nil ||
		!strings.HasSuffix(err.Error(), "volume d has volumeMode Block, but is specified in volumeMounts") {
		t.Errorf("got %v", err)
	}
}

// TestVolumesLeftStagedAreUnstaged checks that volumes that a killed agent has left staged are unstaged.
func TestVolumesLeftStagedAreUnstaged(t *testing.T) {
	w := startCluster(t)
	f := &fakeDriver{name: "a.example.com", capabilities: []spec.NodeServiceCapability_RPC_Type{canStage}}
	left := filepath.Join(w.dir, "plugins/kubernetes.io/csi/a.example.com/0123")
	if err := os.MkdirAll(left+"/globalmount", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left+"/vol_data.json",
		fmt.Appendf(nil, `{"driverName":"a.example.com","volumeHandle":"h9","stage":%q}`, left+"/globalmount"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.registerDriver(f, nil)
	w.Until("the staging folder to be removed", func() bool { _, err := os.Lstat(left); return errors.Is(err, fs.ErrNotExist) })
	w.wantCalls(f, "unstage h9")
}

package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/clustertest"
	"proa.dev/node/cri"
	"proa.dev/node/objects"
	"proa.dev/node/podtrace"
	"proa.dev/node/volume"
	"proa.dev/node/volume/mounts"
)

// testNode is a cluster with one node, and the Volumes of its agent.
type testNode struct {
	*clustertest.TestCluster
	dir     string
	refs    *objects.Refs
	stopRun func()
	metrics *agentmetrics.Metrics
	*volume.Volumes
}

func startNode(t testing.TB) *testNode {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kubernetes.io/hostname": "n1"}}}
	w := &testNode{TestCluster: clustertest.Start(t, node), dir: dir, metrics: agentmetrics.New()}
	w.restart()
	t.Cleanup(func() {
		w.refs.Close()
		if err := mounts.UnmountAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

// restart starts with new Volumes without state in memory, as after a restart of the agent.
func (w *testNode) restart() {
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	if w.stopRun != nil {
		w.stopRun()
		w.refs.Close()
	}
	w.refs = objects.New(w.Agent, log)
	w.Volumes = volume.New(volume.Config{
		Dir: w.dir, Node: "n1", Client: w.Agent, Refs: w.refs, Events: w, Images: w, Metrics: w.metrics, Log: log,
		Allocatable: func() corev1.ResourceList {
			return corev1.ResourceList{"memory": resource.MustParse("64Mi"), "cpu": resource.MustParse("2")}
		},
		Recursive: func(*corev1.Pod) bool { return true },
	})
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan struct{})
	v := w.Volumes
	go func() { v.Run(ctx); close(done) }()
	w.stopRun = func() { stop(); <-done }
	w.Cleanup(w.stopRun)
}

func (w *testNode) Ensure(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ *podtrace.Work) (*cri.Image, error) {
	return &cri.Image{Id: "sha256:" + c.Image}, nil
}

func (w *testNode) update(on schema.GroupResource, o kind.Object) {
	w.Helper()
	if _, err := w.Cluster.Client.Update(w.Context(), on, o, ""); err != nil {
		w.Fatal(err)
	}
}

func (w *testNode) mount(p *corev1.Pod) {
	w.Helper()
	if err := w.Mount(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// volumePath is a path inside a volume.
func (w *testNode) volumePath(p *corev1.Pod, plugin, rest string) string {
	return filepath.Join(w.dir, "pods", string(p.UID), "volumes", "kubernetes.io~"+plugin, rest)
}

func (w *testNode) read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), w.dir, "")
	}
	return string(data)
}

func asRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
}

func configMap(name string, pairs ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		c.Data[pairs[i]] = pairs[i+1]
	}
	return c
}

func TestConfigMapUpdate(t *testing.T) {
	w := startNode(t)
	c := w.Create(gr.ConfigMaps, configMap("settings", "a", "1", "b", "2")).(*corev1.ConfigMap)
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}, {name: some, mountPath: /some}]}], volumes: [
		{name: v, configMap: {name: settings}}, {name: some, configMap: {name: settings, defaultMode: 0o400, items: [{key: a, path: deep/A}, {key: b, path: B, mode: 0o640}]}},
		{name: unused, configMap: {name: none}}]}`)
	w.mount(p)
	v, some := w.volumePath(p, "configmap", "v"), w.volumePath(p, "configmap", "some")
	if w.read(v+"/a") != "1" || w.read(v+"/b") != "2" || w.read(some+"/deep/A") != "1" || w.read(some+"/B") != "2" {
		t.Error(w.read(v+"/a"), w.read(v+"/b"), w.read(some+"/deep/A"), w.read(some+"/B"))
	}
	for path, want := range map[string]fs.FileMode{v + "/a": 0o644, some + "/deep/A": 0o400, some + "/B": 0o640} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	before, err := os.Readlink(v + "/..data")
	if err != nil {
		t.Fatal(err)
	}
	w.mount(p)
	if after, _ := os.Readlink(v + "/..data"); after != before {
		t.Error("the contents were written again by a second mount")
	}
	c.Data = map[string]string{"a": "one", "b": "2", "c": "3"}
	w.update(gr.ConfigMaps, c)
	w.Until("the new contents", func() bool {
		return w.read(v+"/a") == "one" && w.read(v+"/c") == "3" && w.read(some+"/deep/A") == "one"
	})
	if err := w.Unmount(w.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "pods", string(p.UID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the Pod is left: %v", err)
	}
}

func TestMissingConfigMap(t *testing.T) {
	w := startNode(t)
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}, {name: ok, mountPath: /ok}, {name: maybe, mountPath: /maybe}]}], volumes: [
		{name: v, configMap: {name: later}}, {name: ok, emptyDir: {}}, {name: maybe, configMap: {name: never, optional: true}}]}`)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	err := w.Mount(ctx, p)
	stop()
	if err == nil || err.Error() != "unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: context deadline exceeded" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if event := `Warning FailedMount MountVolume.SetUp failed for volume "v" : configmap "later" not found`; !w.Recorded(event) {
		t.Errorf("the events are %q", w.Events())
	}
	done := make(chan error, 1)
	go func() { done <- w.Mount(t.Context(), p) }()
	w.Create(gr.ConfigMaps, configMap("later", "k", "v"))
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the mount did not continue after the ConfigMap was created")
	}
	if all, err := os.ReadDir(w.volumePath(p, "configmap", "maybe")); err != nil || len(all) != 2 {
		t.Errorf("the optional volume has %v, %v", all, err)
	}
	w.Create(gr.ConfigMaps, configMap("never", "k", "v"))
	w.Until("the content of the optional volume", func() bool { return w.read(w.volumePath(p, "configmap", "maybe/k")) == "v" })
}

func TestUnboundClaim(t *testing.T) {
	w := startNode(t)
	w.Create(gr.PersistentVolumeClaims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	})
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}`)
	want := "unmounted volumes=[d], unattached volumes=[], failed to process volumes=[d]: error processing PVC default/data: PVC is not bound"
	if err := w.Mount(t.Context(), p); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if event := "Warning FailedMount Unable to attach or mount volumes: " + want; !w.Recorded(event) {
		t.Errorf("the events are %q", w.Events())
	}
}

func TestSecretsAndTokens(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	w.Create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		StringData: map[string]string{"k": "secret-value"}})
	p := w.Pod("web", `{securityContext: {runAsUser: 1000, fsGroup: 2000}, containers: [{name: c, resources: {limits: {memory: 32Mi, cpu: 1500m}},
		volumeMounts: [{name: s, mountPath: /s}, {name: d, mountPath: /d}, {name: all, mountPath: /all}]}], volumes: [
		{name: s, secret: {secretName: s}},
		{name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}},
		{name: all, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3600, audience: there}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}},
			{secret: {name: s, items: [{key: k, path: secret/k}]}}, {downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}}]}}]}`)
	w.mount(p)
	s, d, all := w.volumePath(p, "secret", "s"), w.volumePath(p, "downward-api", "d"), w.volumePath(p, "projected", "all")
	for path, want := range map[string]string{s + "/k": "secret-value", d + "/labels": `app="web"`, d + "/cpu": "1500",
		all + "/ns":       "default",
		all + "/secret/k": "secret-value"} {
		if got := w.read(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if token := w.read(all + "/token"); strings.Count(token, ".") != 2 {
		t.Errorf("the token is %q", token)
	}
	for _, v := range []string{s, d, all} {
		if is, err := mounts.IsMountPoint(v); err != nil || !is {
			t.Errorf("%s is not in memory: %v", v, err)
		}
	}
	for path, want := range map[string]string{all + "/token": "1000 2000 -rw-r-----", s + "/k": "0 2000 -rw-r--r--",
		all + "/ca.crt": "0 2000 -rw-r--r--", s: "0 2000 dgtrwxrwxrwx"} {
		if got := owner(t, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	// A changed label of the Pod is written to its downwardAPI volume.
	p = p.DeepCopy()
	p.Labels["more"] = "yes"
	w.mount(p)
	if got := w.read(d + "/labels"); got != "app=\"web\"\nmore=\"yes\"" {
		t.Errorf("the labels are %q", got)
	}
	if err := w.Unmount(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	table, err := mounts.Table()
	if err != nil {
		t.Fatal(err)
	}
	if left := mounts.Under(table, w.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

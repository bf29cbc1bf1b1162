package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cri"
	"proa.dev/node/volume/mounts"
)

func noExpansion(string) (string, error) { return "", errors.New("nothing to expand") }

// firstContainer returns the first container of a Pod.
func firstContainer(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }

// describeMounts describes the mounts and devices of the first container. The path of the Pod's folder is left out.
func (w *testNode) describeMounts(p *corev1.Pod) (out []string) {
	w.Helper()
	binds, devices, err := w.Binds(w.Context(), p, firstContainer(p),
		func(s string) (string, error) { return strings.ReplaceAll(s, "$(X)", "expanded"), nil })
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	for _, b := range binds {
		line := b.ContainerPath + " <- " + strings.TrimPrefix(b.HostPath, filepath.Join(w.dir, "pods", string(p.UID)))
		if b.Image != nil {
			line += fmt.Sprintf("image %s %s sub %s", b.Image.Image, b.Image.UserSpecifiedImage, b.ImageSubPath)
		}
		for word, is := range map[string]bool{"": false, " ro": b.Readonly, " rro": b.RecursiveReadOnly,
			" slave": b.Propagation == cri.PropagationHostToContainer, " shared": b.Propagation == cri.PropagationBidirectional} {
			if is {
				line += word
			}
		}
		out = append(out, line)
	}
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%s <- device %s %s", d.ContainerPath,
			strings.TrimPrefix(d.HostPath, filepath.Join(w.dir, "pods", string(p.UID))), d.Permissions))
	}
	return out
}

func TestEmptyDir(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	p := w.Pod("web", `{securityContext: {fsGroup: 77}, containers: [{name: c, volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}, {name: small, mountPath: /small}]}],
		volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}, {name: small, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]}`)
	w.mount(p)
	size := func(name string) int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(w.volumePath(p, "empty-dir", name), &s); err != nil {
			t.Fatal(err)
		}
		return int64(s.Blocks) * s.Bsize
	}
	if size("mem") != 64<<20 || size("small") != 8<<20 {
		t.Errorf("the sizes are %d and %d, want the memory of the node and the size limit", size("mem"), size("small"))
	}
	if got := owner(t, w.volumePath(p, "empty-dir", "disk")); got != "0 77 dgrwxrwxrwx" {
		t.Errorf("the folder is %s", got)
	}
	// Containers may change it, and it survives a restart of the agent.
	if err := os.Chmod(w.volumePath(p, "empty-dir", "disk"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.volumePath(p, "empty-dir", "mem/kept"), []byte("yes"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.mount(p)
	if got := owner(t, w.volumePath(p, "empty-dir", "disk")); got != "0 77 drwx------" {
		t.Errorf("after a restart the folder is %s", got)
	}
	if got := w.read(w.volumePath(p, "empty-dir", "mem/kept")); got != "yes" {
		t.Errorf("after a restart the memory has %s", got)
	}
	p = p.DeepCopy()
	firstContainer(p).Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("16Mi")}
	w.mount(p)
	if size("mem") != 16<<20 {
		t.Errorf("the size is %d, want the new limit", size("mem"))
	}
}

func TestHostPath(t *testing.T) {
	w := startNode(t)
	host := t.TempDir()
	if err := os.WriteFile(host+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", host+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	for i, c := range []struct{ kind, path, want string }{
		{"", "none", ""},
		{"Directory", ".", ""},
		{"Directory", "file", "hostPath type check failed: HOST/file is not a directory, it's a File"},
		{"Directory", "none", `hostPath type check failed, HOST/none is not a directory, unable to determine its type: path "HOST/none" does not exist`},
		{"File", "file", ""},
		{"File", ".", "hostPath type check failed: HOST is not a file, it's a Directory"},
		{"Socket", "socket", ""},
		{"Socket", "file", "hostPath type check failed: HOST/file is not a socket file, it's a File"},
		{"CharDevice", "/dev/null", ""},
		{"BlockDevice", "/dev/null", "hostPath type check failed: /dev/null is not a block device, it's a CharDevice"},
		{"DirectoryOrCreate", "new/deep", ""},
		{"DirectoryOrCreate", "file", "hostPath type check failed: HOST/file is not a directory, it's a File"},
		{"FileOrCreate", "new/file", ""},
		{"FileOrCreate", "absent/file", "open HOST/absent/file: no such file or directory"},
		{"FileOrCreate", ".", "hostPath type check failed: HOST is not a file, it's a Directory"},
	} {
		path := c.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(host, path)
		}
		p := w.Pod(fmt.Sprint("p", i), fmt.Sprintf(`{containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, hostPath: {path: %q, type: %q}}]}`, path, c.kind))
		if c.want == "" {
			w.mount(p)
			continue
		}
		w.Fails(`Warning FailedMount MountVolume.SetUp failed for volume "v" : `+strings.ReplaceAll(c.want, "HOST", host),
			func(ctx context.Context) error { return w.Mount(ctx, p) })
	}
	for path, want := range map[string]string{"new/deep": "drwxr-xr-x", "new/file": "-rw-r--r--"} {
		if info, err := os.Stat(filepath.Join(host, path)); err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// TestVolumesOfClaims mounts volumes of the host through claims.
func TestVolumesOfClaims(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	host := t.TempDir()
	if err := os.Mkdir(host+"/data", 0o755); err != nil {
		t.Fatal(err)
	}
	w.createVolume("here", "n1", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: host + "/data"}})
	w.createVolume("elsewhere", "n2", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: host + "/data"}})
	w.createVolume("path", "", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}})
	p := w.Pod("web", `{securityContext: {fsGroup: 99}, containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}, {name: h, mountPath: /h}]}],
		volumes: [{name: d, persistentVolumeClaim: {claimName: here}}, {name: h, persistentVolumeClaim: {claimName: path, readOnly: true}}]}`)
	w.mount(p)
	if got := owner(t, host+"/data"); got != "0 99 dgrwxrwxr-x" {
		t.Errorf("the folder is %s, want the fsGroup as its group", got)
	}
	want := []string{"/d <- /volumes/kubernetes.io~local-volume/here", "/h <- " + host + " ro"}
	if got := w.describeMounts(p); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := w.Groups(p); !slices.Equal(got, []int64{555}) {
		t.Errorf("the groups are %v", got)
	}
	if got := w.VolumeOf(t.Context(), "default", "path"); got != "path" || w.VolumeOf(t.Context(), "default", "none") != "" {
		t.Errorf("the claim is bound to %q", got)
	}
	// A Pod with another fsGroup shares it, and gets a warning.
	other := w.Pod("other", `{securityContext: {fsGroup: 11}, containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: here}}]}`)
	w.mount(other)
	if event := "Warning AlreadyMountedVolume The requested fsGroup is 11, but the volume here has GID 99. The volume may not be shareable."; !w.Recorded(event) {
		t.Errorf("the events are %q", w.Events())
	}
	onOtherNode := w.Pod("far", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: elsewhere}}]}`)
	w.Fails(`Warning FailedMount MountVolume.NodeAffinity check failed for volume "elsewhere" : no matching NodeSelectorTerms`, func(ctx context.Context) error { return w.Mount(ctx, onOtherNode) })
	if err := os.WriteFile(w.volumePath(p, "local-volume", "here/kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{p.UID, other.UID, onOtherNode.UID} {
		if err := w.Unmount(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(host + "/data/kept"); err != nil {
		t.Errorf("a file of the volume was removed: %v", err)
	}
}

// createVolume creates a PersistentVolume, and a claim of the same name that is bound to it.
func (w *testNode) createVolume(name, node string, source corev1.PersistentVolumeSource) {
	w.Helper()
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.beta.kubernetes.io/gid": "555"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeSource: source,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: name}, StorageClassName: "by-hand",
		},
	}
	if node != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn,
				Values: []string{node}}},
		}}}}
	}
	w.Create(gr.PersistentVolumes, pv)
	w.Create(gr.PersistentVolumeClaims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: new("by-hand"), VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	})
	w.Until("the claim to be bound", func() bool {
		o, err := w.Cluster.Client.Get(w.Context(), gr.PersistentVolumeClaims, "default", name, "")
		return err == nil && o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
	})
}

func TestBinds(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	w.Create(gr.ConfigMaps, configMap("settings", "a", "1"))
	host := t.TempDir()
	p := w.Pod("web", fmt.Sprintf(`{containers: [{name: c, securityContext: {privileged: true}, volumeMounts: [
		{name: e, mountPath: /e, mountPropagation: Bidirectional}, {name: e, mountPath: /ro, readOnly: true, recursiveReadOnly: Enabled},
		{name: e, mountPath: /sub, subPath: a/b}, {name: e, mountPath: /expr, subPathExpr: x/$(X)},
		{name: m, mountPath: /m}, {name: m, mountPath: /m/file, subPath: a}, {name: h, mountPath: rel, mountPropagation: HostToContainer}, {name: i, mountPath: /i, subPath: in/it}]}],
		volumes: [{name: e, emptyDir: {}}, {name: m, configMap: {name: settings}}, {name: h, hostPath: {path: %q}}, {name: i, image: {reference: "tools:1", pullPolicy: Never}}]}`, host))
	w.mount(p)
	want := []string{
		"/e <- /volumes/kubernetes.io~empty-dir/e shared",
		"/ro <- /volumes/kubernetes.io~empty-dir/e ro rro",
		"/sub <- /volume-subpaths/e/c/2",
		"/expr <- /volume-subpaths/e/c/3",
		"/m <- /volumes/kubernetes.io~configmap/m ro",
		"/m/file <- /volume-subpaths/m/c/5 ro",
		"/rel <- " + host + " slave",
		"/i <- image sha256:tools:1 tools:1 sub in/it ro",
	}
	got := w.describeMounts(p)
	for i := range got { // the flags are in any order
		got[i] = strings.Replace(got[i], " rro ro", " ro rro", 1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := w.read(filepath.Join(w.dir, "pods", string(p.UID), "volume-subpaths/m/c/5")); got != "1" {
		t.Errorf("the subPath of the ConfigMap is %q", got)
	}
	for sub, want := range map[string]string{
		"/abs":   "error SubPath `/abs` must not be an absolute path",
		"a/../b": "unable to provision SubPath `a/../b`: must not contain '..'",
	} {
		bad := p.DeepCopy()
		firstContainer(bad).VolumeMounts[2].SubPath = sub
		if _, _, err := w.Binds(t.Context(), bad, firstContainer(bad), noExpansion); err == nil || err.Error() != want {
			t.Errorf("%s: %v", sub, err)
		}
	}
	if err := os.Symlink("/etc", w.volumePath(p, "empty-dir", "e/escape")); err != nil {
		t.Fatal(err)
	}
	bad := p.DeepCopy()
	firstContainer(bad).VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "escape/passwd"}}
	if got := w.describeMounts(bad); got[0] != `error: failed to prepare subPath for volumeMount "e" of container "c"` {
		t.Errorf("got %q", got)
	}
	firstContainer(bad).VolumeMounts = []corev1.VolumeMount{{Name: "absent", MountPath: "/x"}}
	if got := w.describeMounts(bad); got[0] != `error: cannot find volume "absent" to mount into container "c"` {
		t.Errorf("got %q", got)
	}
	if err := w.Unmount(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if left, err := w.PodUIDs(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("Pods with volumes: %v, %v", left, err)
	}
}

// TestUnmountWithoutState unmounts and removes, without state in memory, the volumes that a killed agent and hostile containers left.
func TestUnmountWithoutState(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	w.Create(gr.ConfigMaps, configMap("settings", "a", "1"))
	host := t.TempDir()
	if err := os.WriteFile(host+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: e, mountPath: /e}, {name: mem, mountPath: /mem}, {name: m, mountPath: /m}, {name: e, mountPath: /sub, subPath: part}]}],
		volumes: [{name: e, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}, {name: m, configMap: {name: settings}}]}`)
	w.mount(p)
	w.describeMounts(p)
	e := w.volumePath(p, "empty-dir", "e")
	for link, to := range map[string]string{"out": host, "up": "../../../../..", "file": host + "/precious"} {
		if err := os.Symlink(to, filepath.Join(e, link)); err != nil {
			t.Fatal(err)
		}
	}
	// A container has put a symbolic link in place of a volume.
	m := w.volumePath(p, "configmap", "m")
	if err := os.Rename(m, m+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(host, m); err != nil {
		t.Fatal(err)
	}
	// A container has mounted the host inside a volume.
	if err := os.Mkdir(e+"/inner", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Bind(host, e+"/inner", mounts.ReadWrite); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "pods", string(p.UID), "etc-hosts"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if left, err := w.PodUIDs(t.Context()); err != nil || !slices.Equal(left, []types.UID{p.UID}) {
		t.Errorf("Pods with volumes: %v, %v", left, err)
	}
	for range 2 {
		if err := w.Unmount(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "pods", string(p.UID), "etc-hosts")); err != nil {
		t.Errorf("a file that is not a volume was removed: %v", err)
	}
	if err := w.Remove(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	if left, err := w.PodUIDs(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("Pods with volumes: %v, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "pods", string(p.UID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if _, err := os.Lstat(host + "/precious"); err != nil {
		t.Errorf("a file of the host was removed: %v", err)
	}
	for _, uid := range []types.UID{"", "..", "a/b", "."} {
		if err := w.Unmount(t.Context(), uid); err == nil {
			t.Errorf("%q was accepted as a UID", uid)
		}
	}
}

// TestDeniedPodCertificate denies the certificate request of a Pod with a podCertificate projection.
func TestDeniedPodCertificate(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	p := w.Pod("web", `{serviceAccountName: default, containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, projected: {sources: [
		{podCertificate: {signerName: example.com/signer, keyType: ED25519, credentialBundlePath: bundle.pem, keyPath: key.pem}}]}}]}`)
	done := make(chan error, 1)
	go func() { done <- w.Mount(t.Context(), p) }()
	v, err := w.Cluster.Client.View(t.Context(), gr.PodCertificateRequests)
	if err != nil {
		t.Fatal(err)
	}
	for ev := range v.Events(t.Context()) {
		r := ev.Object.(*certificatesv1.PodCertificateRequest).DeepCopy()
		if r.Spec.PodName != "web" || r.Spec.NodeName != "n1" || r.Spec.SignerName != "example.com/signer" {
			t.Errorf("the request is %+v", r.Spec)
		}
		r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied,
			Status: metav1.ConditionTrue, Reason: "No", Message: "never", LastTransitionTime: metav1.Now()}}
		if _, err := w.Cluster.Client.Update(t.Context(), gr.PodCertificateRequests, r, "status"); err != nil {
			t.Fatal(err)
		}
		break
	}
	w.Until("the Event about the denial", func() bool {
		return w.Recorded(`Warning FailedMount MountVolume.SetUp failed for volume "v" : PodCertificateRequest was permanently denied: reason="No" message="never"`)
	})
	if err := w.Unmount(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
}

package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/localvolume"
)

// TestLocalPath checks that the folder of a volume is created on its first use, and removed when an annotation of the Node requests it.
func TestLocalPath(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.RunLocalPath(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	node := func() *corev1.Node {
		o, err := w.Cluster.Client.Get(t.Context(), gr.Nodes, "", "n1", "")
		if err != nil {
			t.Fatal(err)
		}
		return o.(*corev1.Node)
	}
	dir := filepath.Join(w.dir, "local-path")
	w.Until("the folder on the Node", func() bool { return node().Annotations[localvolume.FolderAnnotation] == dir })
	w.createProvisionedVolume("vol", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir + "/vol"}})
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: vol}}]}`)
	w.mount(p)
	if got := owner(t, dir+"/vol"); got != "0 0 drwxrwxrwx" {
		t.Errorf("the folder is %s", got)
	}
	if err := os.WriteFile(w.volumePath(p, "local-volume", "vol/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	requestRemoval := func(name string) {
		w.Until("the request to be written", func() bool {
			n := node()
			work := localvolume.WorkOf(n)
			work[name] = localvolume.Remove
			localvolume.SetWork(n, work)
			_, err := w.Cluster.Client.Update(t.Context(), gr.Nodes, n, "")
			return err == nil
		})
	}
	removed := func(name string) func() bool { // or removed from the annotation by the provisioner, which runs too
		return func() bool { return localvolume.WorkOf(node())[name] != localvolume.Remove }
	}
	// One volume is still used, and the folder of the other does not exist.
	requestRemoval("vol")
	requestRemoval("other")
	w.Until("the missing folder to be reported as removed", removed("other"))
	if _, err := os.Lstat(dir + "/vol/file"); err != nil || removed("vol")() {
		t.Errorf("a volume that is used was removed: %v", err)
	}
	if err := w.Unmount(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	w.Until("the Node to be changed", func() bool { // any change makes the agent try again; others write the Node too
		n := node()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "x", "y")
		_, err := w.Cluster.Client.Update(t.Context(), gr.Nodes, n, "")
		return err == nil
	})
	w.Until("the folder to be removed", removed("vol"))
	if _, err := os.Lstat(dir + "/vol"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestLocalPathOfARestoredDataFolder checks that a data folder restored at another path does not write into the original's
// volumes: volumes of the built-in provisioner are in the data folder of the agent that uses them, others are where they say.
func TestLocalPathOfARestoredDataFolder(t *testing.T) {
	asRoot(t)
	w := startNode(t)
	original, own := filepath.Join(t.TempDir(), "local-path"), filepath.Join(w.dir, "local-path")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	local := func(path string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
	}
	pod := func(claim string) *corev1.Pod {
		return w.Pod("with-"+claim, `{containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: `+claim+`}}]}`)
	}
	for _, c := range []struct {
		name        string
		provisioned bool
		restored    bool // its folder is also in the data folder of this node
		existed     bool // it is in the original data folder
		want        string
	}{
		{"copied", true, true, true, "restored"},
		{"moved", true, true, false, "restored"},
		{"unused", true, false, false, ""},
		{"by-hand", false, true, true, "original"},
	} {
		if c.existed {
			write(filepath.Join(original, c.name, "file"), "original")
		}
		if c.restored {
			write(filepath.Join(own, c.name, "file"), "restored")
		}
		if c.provisioned {
			w.createProvisionedVolume(c.name, local(filepath.Join(original, c.name)))
		} else {
			w.createVolume(c.name, "n1", local(filepath.Join(original, c.name)))
		}
		p := pod(c.name)
		w.mount(p)
		got, _ := os.ReadFile(w.volumePath(p, "local-volume", c.name+"/file"))
		if string(got) != c.want {
			t.Errorf("%s shows %q, want %q", c.name, got, c.want)
		}
		if err := w.Unmount(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(original, "unused")); err == nil {
		t.Error("a folder was created in the original data folder")
	}
}

// createProvisionedVolume creates a volume like those of the built-in provisioner, and its claim.
func (w *testNode) createProvisionedVolume(name string, source corev1.PersistentVolumeSource) {
	w.Helper()
	w.createVolume(name, "n1", source)
	o, err := w.Cluster.Client.Get(w.Context(), gr.PersistentVolumes, "", name, "")
	if err != nil {
		w.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&o.(*corev1.PersistentVolume).ObjectMeta, localvolume.ProvisionedByAnnotation, localvolume.Provisioner)
	w.update(gr.PersistentVolumes, o)
}

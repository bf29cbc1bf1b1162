package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/localvolume"
)

// TestLocalSource checks that volumes of the built-in provisioner, and only those, are in the data folder of their node, and that
// one that is left at another place is not replaced by an empty folder.
func TestLocalSource(t *testing.T) {
	own, original := t.TempDir(), filepath.Join(t.TempDir(), "local-path")
	v := &Volumes{Config: Config{Dir: own, Node: "n1"}}
	own = filepath.Join(own, "local-path")
	for _, dir := range []string{filepath.Join(own, "both"), filepath.Join(original, "both"), filepath.Join(original, "left")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		why, name, path, by, node string
		want                      string
	}{
		{"created here", "here", own + "/here", localvolume.Provisioner, "n1", own + "/here"},
		{"restored", "both", original + "/both", localvolume.Provisioner, "n1", own + "/both"},
		{"restored before it was used", "new", original + "/new", localvolume.Provisioner, "n1", own + "/new"},
		{"only in the original folder", "left", original + "/left", localvolume.Provisioner, "n1", "move it to " + own + "/left"},
		{"created by a user", "both", original + "/both", "", "", original + "/both"},
		{"created by another provisioner", "both", original + "/both", "example.com/x", "n1", original + "/both"},
		{"of another node", "both", original + "/both", localvolume.Provisioner, "n2", original + "/both"},
		{"annotated by a user, with a path that the provisioner does not use", "both", "/mnt/disks/both", localvolume.Provisioner, "n1",
			"/mnt/disks/both"},
		{"annotated by a user, with another name", "both", original + "/other", localvolume.Provisioner, "n1", original + "/other"},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.name,
			Annotations: map[string]string{localvolume.ProvisionedByAnnotation: c.by, localvolume.NodeAnnotation: c.node}}}
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: c.path}
		got, err := v.localSource(pv)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("a volume %s is at %s, want %s", c.why, got, c.want)
		}
	}
}

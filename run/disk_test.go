package run_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// diskUse returns the bytes of the blocks that the files below a folder take, reserved ones included.
func diskUse(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestFreshClusterTakesLittleDisk measures the folder of a whole server with its embedded store: with some hundred objects, which is
// what every cluster begins with and some more, it takes less than 20 MB.
func TestFreshClusterTakesLittleDisk(t *testing.T) {
	dir := t.TempDir()
	c := proatest.Start(t, proatest.Alone(), proatest.InDir(dir))
	for n := range 100 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", n)},
			Data: map[string]string{"a": strings.Repeat("x", 1000)}}
		if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, cm); err != nil {
			t.Fatal(err)
		}
	}
	const most = 20_000_000
	running := diskUse(t, dir)
	c.Stop()
	if stopped := diskUse(t, dir); running > most || stopped > most {
		t.Errorf("the folder takes %d bytes while the server runs, and %d afterwards", running, stopped)
	} else {
		t.Logf("the folder takes %d bytes while the server runs, and %d afterwards", running, stopped)
	}
}

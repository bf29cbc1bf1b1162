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

// diskUse returns the bytes of all blocks that the files below a folder have, including preallocated ones.
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

// TestNewClusterDiskUsage checks that the data folder of a server with an embedded store and a few hundred objects, the initial
// ones and a hundred more, takes less than 20 MB.
func TestNewClusterDiskUsage(t *testing.T) {
	dir := t.TempDir()
	c := proatest.Start(t, proatest.Alone(), proatest.InDir(dir))
	for n := range 100 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", n)},
			Data: map[string]string{"a": strings.Repeat("x", 1000)}}
		if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, cm); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 20_000_000
	running := diskUse(t, dir)
	c.Stop()
	if stopped := diskUse(t, dir); running > limit || stopped > limit {
		t.Errorf("the folder takes %d bytes while the server runs, and %d afterwards", running, stopped)
	} else {
		t.Logf("the folder takes %d bytes while the server runs, and %d afterwards", running, stopped)
	}
}

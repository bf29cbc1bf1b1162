package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNode runs Pods in containers. What would disturb the others has its turn first: scripts in testdata/node/alone.
func TestNode(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	m := newMachine(t, bins)
	env := m.registries()
	m.up()
	bad, target := hostile(t)
	env["TARGET"] = target
	m.load(append(archives(t, "tool", "busybox"), bad))
	for _, path := range scripts(t, "testdata/node/alone") {
		t.Run("alone/"+strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { m.script(t, path, env).run() })
	}
	t.Run("together", func(t *testing.T) {
		for _, path := range scripts(t, "testdata/node") {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				t.Parallel()
				m.script(t, path, env).run()
			})
		}
	})
}

package e2e

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// TestNode runs scripts with Pods in containers. Scripts that would disturb others run first, one by one: testdata/node/alone.
func TestNode(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	m := newMachine(t, bins)
	env := m.registries()
	m.up()
	bad, target := hostileImages(t)
	env["TARGET"] = target
	maps.Copy(env, webhooks(t))
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

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHiddenNodes joins nodes that the server cannot reach: b is behind a router that translates its address, c behind one that
// lets nobody in. What needs the agents and Pods there goes through tunnels.
func TestHiddenNodes(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	for _, tool := range []string{"ip", "nsenter", "unshare", "mount", "nft", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("machines are played by namespaces, and that needs %s: %v", tool, err)
		}
	}
	w := newWorld(t, 19)
	err := w.sh(t.Context(), `nsenter --net=`+w.dir+`/router nft -f - <<END
table ip hides {
  chain forward { type filter hook forward priority 0; policy accept; ct state established,related accept; iifname "up" drop; }
  chain out { type nat hook postrouting priority 100; policy accept; iifname "to-b" oifname "up" masquerade; }
}
END`)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, bins, "--node-ip", w.machine)
	m.up()
	tools := archives(t, "tool", "busybox")
	m.load(tools)
	for i, name := range []string{"b", "c"} {
		w.join(m, name, w.places[i], tools)
	}
	for _, path := range scripts(t, "testdata/hidden") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			m.script(t, path, map[string]string{"WORLD": w.dir}).run()
		})
	}
}

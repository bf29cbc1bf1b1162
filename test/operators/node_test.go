package operators

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	images "proa.dev/test/images/build"
	"proa.dev/test/ports"
	"proa.dev/test/upstream"
)

// node is a cluster with one node on this machine that runs containers.
type node struct {
	*kubectl
	proa, dir string
}

// startNode starts a cluster with a node that has the images, and removes everything after the test. It skips the test if
// PROA_OPERATORS is not set, or if nodes cannot run.
func startNode(t *testing.T, names ...string) *node {
	t.Helper()
	if os.Getenv("PROA_OPERATORS") == "" {
		t.Skip("this takes minutes; make operators runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("a node with containers needs root; run the tests as root")
	}
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its names are too long for sockets.
	dir, err := os.MkdirTemp("", "proa-ops-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // Pods with users of their own must be able to pass through
		t.Fatal(err)
	}
	n := &node{proa: os.Getenv("PROA_BIN"), dir: dir}
	if n.proa == "" {
		n.proa = filepath.Join(root, "bin", "proa")
	}
	archives, err := images.Archives(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.remove(t) })
	free := ports.Strings(t, 2)
	n.command(t, "up", "--data-dir", n.data(), "--listen", "127.0.0.1:"+free[0], "--node-port", free[1], "--name", filepath.Base(dir),
		"--no-merge", "--node", "a",
		"--ingress-class", "off", "--proxy-healthz", "off", "--proxy-status", "off", "--image-gc-high-threshold", "100", "--eviction-hard",
		"memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
	n.command(t, append([]string{"images", "load", "--data-dir", n.data()}, archives...)...)
	n.kubectl = newKubectl(t, filepath.Join(n.data(), "admin.kubeconfig"))
	return n
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

// command runs proa, which must succeed.
func (n *node) command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), n.proa, args...).CombinedOutput(); err != nil {
		t.Fatalf("proa %v: %v\n%s", args, err, out)
	}
}

// remove ends the cluster and removes what it made.
func (n *node) remove(t *testing.T) {
	t.Helper()
	if t.Failed() && os.Getenv("PROA_KEEP") != "" {
		t.Logf("the cluster is left as it is: export KUBECONFIG=%s", filepath.Join(n.data(), "admin.kubeconfig"))
		return
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(n.data(), "server.log"))
		t.Logf("the end of the log:\n%s", log[max(0, len(log)-4000):])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, n.proa, "down", "--purge", "--now", "--data-dir", n.data()).CombinedOutput(); err != nil {
		t.Errorf("down --purge: %v\n%s", err, out)
		return // the folder is needed to clean up by hand
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Errorf("something is left: %v", err)
	}
}

// module returns the folder of a module that is pinned in a folder of test/upstream.
func module(t *testing.T, pins, path string) string {
	t.Helper()
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = filepath.Join(root, "test/upstream/pins", pins)
	out, err := cmd.Output()
	if err != nil || len(out) < 2 {
		t.Fatalf("find the module %s: %v", path, err)
	}
	return string(out[:len(out)-1])
}

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	images "proa.dev/test/images/build"
	"proa.dev/test/ports"
	"proa.dev/test/registry"
)

// machine is a cluster with a node on this machine. It has its own data folder, port and networks, so that several can run at the
// same time.
type machine struct {
	t       *testing.T
	bins    programs
	dir     string // the parent of the data folder, static Pods and registry mirrors
	address string // where the cluster listens
	args    []string
}

// needNode skips the test if containers cannot run, and returns the programs otherwise.
func needNode(t *testing.T) programs {
	t.Helper()
	bins := build(t)
	if os.Geteuid() != 0 {
		t.Skip("a node with containers needs root; run the tests as root")
	}
	for _, part := range []string{"containerd", "containerd-shim-runc-v2", "runc", "proa-cni", "pause"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(bins["proa"]), part)); err != nil {
			t.Skipf("%s is not beside proa (%v); \"make e2e\" builds it", part, err)
		}
	}
	return bins
}

// newMachine prepares a cluster; up starts it. Everything that the cluster creates is removed after the test.
func newMachine(t *testing.T, bins programs, args ...string) *machine {
	t.Helper()
	// Not t.TempDir: its names are too long for sockets.
	dir, err := os.MkdirTemp("", "proa-e2e-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	// Like /var/lib: processes of Pods with other users must be able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"static", "mirrors", "home"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	block, free := networkBlock(), ports.Strings(t, 2)
	m := &machine{t: t, bins: bins, dir: dir, address: "127.0.0.1:" + free[0]}
	m.args = append([]string{
		"--data-dir", m.data(), "--listen", m.address, "--node-port", free[1], "--name", filepath.Base(dir), "--no-merge", "--node", "a",
		"--cluster-cidr", fmt.Sprintf("10.%d.0.0/16", 64+block), "--service-cidr", fmt.Sprintf("10.%d.0.0/16", 97+block),
		"--pod-manifest-path", filepath.Join(dir, "static"), "--registry-dir", filepath.Join(dir, "mirrors"),
		// The free space on the disk of this machine must not cause evictions.
		"--image-gc-high-threshold", "100", "--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%",
	}, args...)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("PROA_E2E_KEEP") != "" {
			t.Logf("the cluster is left as it is: export KUBECONFIG=%s", m.kubeconfig())
			return
		}
		if t.Failed() {
			t.Logf("the end of the log:\n%s", m.log(40))
		}
		for _, place := range m.namespaces() {
			checkRulesAreReadable(t, place)
		}
		// A server that was killed may need a moment to end. Some tests remove the folder themselves.
		var out string
		var err error
		for range 20 {
			if _, gone := os.Stat(m.data()); gone != nil {
				err = nil
				break
			}
			if out, err = m.run(context.Background(), "proa", "down", "--purge", "--now", "--data-dir", m.data()); err != nil {
				time.Sleep(500 * time.Millisecond)
			}
		}
		if err != nil {
			t.Errorf("down --purge: %v\n%s", err, out)
			return // the folder is needed to clean up by hand
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("something is left: %v", err)
		}
	})
	return m
}

// namespaces returns the network namespaces of the cluster's nodes: that of this machine, and those of further nodes on it.
func (m *machine) namespaces() []string {
	further, _ := filepath.Glob(filepath.Join(m.data(), "nodes", "*", "netns"))
	return append(further, "/proc/self/ns/net")
}

// checkRulesAreReadable checks that the nft of this machine, if it is installed, can list the rules of a network namespace, so that
// an administrator can read them.
func checkRulesAreReadable(t *testing.T, place string) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		return
	}
	if out, err := exec.Command("nsenter", "--net="+place, nft, "list", "ruleset").CombinedOutput(); err != nil {
		t.Errorf("nft list ruleset in %s: %v\n%s", place, err, out[max(0, len(out)-1000):])
	}
}

// networks counts the clusters of this process, which run beside each other.
var networks atomic.Int64

// networkBlock returns a number for the networks of a cluster: 10.64.0.0/16 to 10.94.0.0/16 for Pods and 10.97.0.0/16 to
// 10.127.0.0/16 for Services, which no cluster chooses by itself. Clusters of one test process that run at the same time never have
// the same networks, those of several processes seldom.
func networkBlock() int { return (os.Getpid()*8 + int(networks.Add(1))) % 31 }

func (m *machine) data() string       { return filepath.Join(m.dir, "data") }
func (m *machine) kubeconfig() string { return filepath.Join(m.data(), "admin.kubeconfig") }

// up starts the cluster, or starts it again.
func (m *machine) up() {
	m.t.Helper()
	if out, err := m.run(m.t.Context(), "proa", append([]string{"up", "--timeout", "3m"}, m.args...)...); err != nil {
		m.t.Fatalf("proa up: %v\n%s\n%s", err, out, m.log(20))
	}
}

// load brings images to the node.
func (m *machine) load(archives []string) {
	m.t.Helper()
	if out, err := m.run(m.t.Context(), "proa", append([]string{"images", "load", "--data-dir", m.data()}, archives...)...); err != nil {
		m.t.Fatalf("proa images load: %v\n%s", err, out)
	}
}

// run runs one of the programs to its end.
func (m *machine) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.bins[name], args...)
	cmd.Dir = m.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(m.dir, "home"), "KUBECONFIG=" + m.kubeconfig()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pid returns the process ID of the cluster.
func (m *machine) pid() int {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.data(), "server.pid"))
	if err != nil {
		m.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

func (m *machine) log(lines int) string {
	var out []string
	for _, name := range []string{"server.log", "node/agent.log"} {
		data, err := os.ReadFile(filepath.Join(m.data(), name))
		if err != nil {
			return err.Error()
		}
		all := strings.Split(strings.TrimSpace(string(data)), "\n")
		out = append(out, all[max(0, len(all)-lines):]...)
	}
	return strings.Join(out, "\n")
}

// archives returns the archives of images that scripts use.
func archives(t *testing.T, names ...string) []string {
	t.Helper()
	paths, err := images.Archives(t.Context(), names...)
	if err != nil {
		t.Skipf("the images of the tests cannot be built here (they are made from Debian packages and modules of the Go proxy): %v", err)
	}
	return paths
}

// registries starts two registries: an open one, which is also a mirror of docker.io, and one that needs a password.
func (m *machine) registries() map[string]string {
	m.t.Helper()
	open, err := registry.Start(m.t.Context(), registry.Options{Archives: archives(m.t, "tool", "nginx")})
	if err != nil {
		m.t.Fatal(err)
	}
	closed, err := registry.Start(m.t.Context(), registry.Options{Archives: archives(m.t, "tool"), Auth: registry.Token})
	if err != nil {
		m.t.Fatal(err)
	}
	m.must(open.Tag("registry.k8s.io/e2e-test-images/nginx:1.27.0-2", "docker.io/library/nginx:1.27"))
	m.must(open.Vary("proa.test/tool:1", "fresh:1", 1<<20))
	m.must(open.Vary("proa.test/tool:1", "often:1", 1<<10))
	m.must(closed.Vary("proa.test/tool:1", "secret:1", 1<<10))
	for host, r := range map[string]*registry.Registry{"docker.io": open, "private.test": closed} {
		m.must(r.Mirror(filepath.Join(m.dir, "mirrors"), host))
	}
	return map[string]string{
		"REGISTRY": open.Addr, "DOCKERCONFIG": base64.StdEncoding.EncodeToString(closed.DockerConfig("private.test")),
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// script returns a script that runs against this cluster, in its own namespace.
func (m *machine) script(t *testing.T, path string, env map[string]string) *script {
	t.Helper()
	return m.scriptIn(t, path, strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".txt"), "_", "-"), env)
}

// scriptIn returns a script that runs in a given namespace.
func (m *machine) scriptIn(t *testing.T, path, ns string, env map[string]string) *script {
	t.Helper()
	s := newScript(t, path, m.bins)
	s.setenv("KUBECONFIG", copyFile(t, m.kubeconfig(), filepath.Join(s.work, "kubeconfig")))
	s.setenv("NS", ns)
	s.setenv("KUBECTL", m.bins["kubectl"])
	s.setenv("PROA", m.bins["proa"])
	s.setenv("DATA", m.data())
	s.setenv("STATIC", filepath.Join(m.dir, "static"))
	s.setenv("HOSTPORT", ports.Strings(t, 1)[0])
	for k, v := range env {
		s.setenv(k, v)
	}
	s.must("kubectl", "create", "namespace", ns)
	s.must("kubectl", "config", "set-context", "--current", "--namespace="+ns)
	return s
}

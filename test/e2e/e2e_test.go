// Package e2e runs the built proa with real kubectls, as users do.
//
// A script in testdata/ is a list of commands with the output that they must have, and the files that they use; script_test.go
// documents the commands. Scripts in testdata/kubectl share one cluster, with a namespace for each script, and run once with the
// kubectl of the Kubernetes version that proa serves and once with one several minor versions older. Scripts in testdata/cluster
// start and stop clusters.
// Scripts in testdata/node run containers on a node of this machine, which needs root; killed_test.go and purge_test.go kill and
// remove such nodes. Scripts in testdata/several have three such nodes, and those in testdata/joined have nodes that joined from
// behind a router.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/test/ports"
	"proa.dev/test/program"
	"proa.dev/test/upstream"
)

// programs are the binaries under test, by name: proa, kubectl, kubectl-old.
type programs map[string]string

// build finds or builds the programs. PROA_BIN is the path of a proa that is built already. Without the modules that kubectl is
// built from the test is skipped, or fails if CI is set.
func build(t *testing.T) programs {
	t.Helper()
	bins, err := upstream.Build(t.Context(), "kubectl", "kubectl-old")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("kubectl cannot be built: %v", err)
		}
		t.Skipf("kubectl cannot be built here (it is made from modules of the Go proxy): %v", err)
	}
	bins["proa"] = os.Getenv("PROA_BIN")
	if bins["proa"] != "" {
		return bins
	}
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	bins["proa"] = filepath.Join(t.TempDir(), "proa")
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", bins["proa"], "./cmd/proa")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build proa: %v\n%s", err, out)
	}
	return bins
}

// start runs a cluster until the test ends, and returns its admin kubeconfig.
func start(t *testing.T, bins programs, args ...string) string {
	t.Helper()
	s, err := upstream.StartProa(context.WithoutCancel(t.Context()), bins["proa"], args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if why := s.Dead(); why != "" {
			t.Errorf("the server did not live as long as its test: %s", why)
		}
		s.Stop()
	})
	return s.Kubeconfig
}

func TestKubectl(t *testing.T) {
	t.Parallel()
	bins := build(t)
	play(t, bins, start(t, bins), "testdata/kubectl")
}

// TestNodes runs the scripts for clusters with simulated nodes.
func TestNodes(t *testing.T) {
	t.Parallel()
	bins := build(t)
	play(t, bins, start(t, bins, "--simulate", "3"), "testdata/nodes")
}

// play runs the scripts of a folder against a cluster, each in a namespace of its own, with a new and an old kubectl.
func play(t *testing.T, bins programs, kubeconfig, dir string) {
	t.Helper()
	for _, kubectl := range []string{"kubectl", "kubectl-old"} {
		for _, path := range scripts(t, dir) {
			name := strings.TrimSuffix(filepath.Base(path), ".txt")
			t.Run(kubectl+"/"+name, func(t *testing.T) {
				t.Parallel()
				ns := strings.ReplaceAll(fmt.Sprintf("%s-%s", name, kubectl), "_", "-")
				s := newScript(t, path, programs{"proa": bins["proa"], "kubectl": bins[kubectl]})
				s.setenv("KUBECTL", bins[kubectl])
				s.setenv("KUBECONFIG", copyFile(t, kubeconfig, filepath.Join(s.work, "kubeconfig")))
				s.setenv("NS", ns)
				s.flags[kubectl] = true
				s.must("kubectl", "create", "namespace", ns)
				s.must("kubectl", "config", "set-context", "--current", "--namespace="+ns)
				s.run()
			})
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	bins := build(t)
	for _, path := range scripts(t, "testdata/cluster") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := newScript(t, path, bins)
			free := ports.Strings(t, 2)
			s.setenv("PROA", bins["proa"])
			s.setenv("PORT1", free[0])
			s.setenv("PORT2", free[1])
			// The free space on the disk of this machine must not decide whether a cluster is well.
			s.setenv("ANY_DISK", "--eviction-hard=memory.available<1Mi")
			s.setenv("KUBECONFIG", filepath.Join(s.work, "kubeconfig"))
			t.Cleanup(func() {
				for _, dir := range []string{"a", "b"} {
					_ = s.command(context.Background(), "proa", "down", "--purge", "--data-dir", filepath.Join(s.work, dir)).Run()
				}
			})
			s.run()
		})
	}
}

func scripts(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	return paths
}

func copyFile(t *testing.T, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = program.Write(to, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

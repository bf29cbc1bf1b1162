// Package operators runs what people install on a cluster, and what we did not write, on clusters of ours: admission
// webhooks beside policies that do the same, cert-manager and metrics-server from their own charts, an operator as
// kubebuilder scaffolds it, and controller-runtime's own tests.
//
// What takes long is left out unless PROA_OPERATORS is set; make operators sets it.
package operators

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proa.dev/test/upstream"
)

// kubectl is a kubectl for one cluster.
type kubectl struct {
	program, kubeconfig, cache string
}

// programs finds or builds programs of others. Without them there is nothing to test with: that skips on a machine without the modules, and
// fails where CI is set.
func programs(t *testing.T, names ...string) map[string]string {
	t.Helper()
	bins, err := upstream.Build(t.Context(), names...)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v cannot be built here (they are made from modules of the Go proxy): %v", names, err)
	}
	return bins
}

// newKubectl returns the kubectl of a cluster.
func newKubectl(t *testing.T, kubeconfig string) *kubectl {
	t.Helper()
	return &kubectl{program: programs(t, "kubectl")["kubectl"], kubeconfig: kubeconfig, cache: t.TempDir()}
}

// try runs kubectl and returns what it says.
func (k *kubectl) try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.program, append([]string{"--kubeconfig", k.kubeconfig, "--cache-dir", k.cache}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs kubectl, which must succeed.
func (k *kubectl) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := k.try(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// until runs kubectl until what it says contains a text, and returns all that it said then.
func (k *kubectl) until(t *testing.T, want string, args ...string) string {
	t.Helper()
	var out string
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if out, _ = k.try(t, "", args...); strings.Contains(out, want) {
			return out
		}
	}
	t.Fatalf("kubectl %v does not say %q but:\n%s", args, want, out)
	return ""
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Package operators runs third-party software on clusters of proa: admission webhooks and equivalent policies, cert-manager and
// metrics-server from their own manifests, an operator that was scaffolded with kubebuilder, and controller-runtime's own tests.
//
// Tests that take long are skipped unless PROA_OPERATORS is set; make operators sets it.
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

// programs finds or builds upstream programs. Without the modules that they are built from the test is skipped, or fails if CI is
// set.
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

// try runs kubectl and returns its output.
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

// until runs kubectl until its output contains a text, and returns the output.
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

// readFile returns the text of a file.
func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

package operators

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// metricsServerManifests returns a folder with the manifests of metrics-server and the changes for this test.
func metricsServerManifests(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	theirs := filepath.Join(module(t, "metrics-server", "sigs.k8s.io/metrics-server"), "manifests")
	if err := errors.Join(os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS(theirs)),
		os.CopyFS(filepath.Join(dir, "ours"), os.DirFS("testdata/metrics-server"))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "ours")
}

// TestMetricsServer replaces the built-in metrics by metrics-server with its own manifests, and measures real containers.
func TestMetricsServer(t *testing.T) {
	n := startNode(t, "metrics-server", "tool")
	n.run(t, "", "create", "deployment", "load", "--image=proa.test/tool:1", "--replicas=2")
	n.run(t, "", "rollout", "status", "deployment/load", "--timeout=2m")
	n.until(t, "a ", "top", "nodes", "--no-headers") // the built-in ones

	n.run(t, "", "apply", "-k", metricsServerManifests(t))
	n.run(t, "", "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=3m")
	if out := n.run(t, "", "get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "jsonpath={.spec.service.name}"); out != "metrics-server" {
		t.Fatalf("the APIService names %q", out)
	}
	n.until(t, "a ", "top", "nodes", "--no-headers")
	out := n.until(t, "load-", "top", "pods", "--no-headers")
	if !regexp.MustCompile(`(?m)^load-\S+ +\d+m +\d+Mi *$`).MatchString(out) {
		t.Errorf("kubectl top pods says %s", out)
	}
	// Without the Pods of metrics-server there are no metrics, so it was metrics-server that answered.
	n.run(t, "", "scale", "deployment/metrics-server", "-n", "kube-system", "--replicas=0")
	n.until(t, "unable to handle the request", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")

	// Without the APIService of metrics-server the built-in metrics are served again.
	n.run(t, "", "delete", "apiservice", "v1beta1.metrics.k8s.io")
	n.until(t, "Local", "get", "apiservice", "v1beta1.metrics.k8s.io")
	n.until(t, "a ", "top", "nodes", "--no-headers")
}

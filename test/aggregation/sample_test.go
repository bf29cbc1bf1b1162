// Package aggregation tests clusters with aggregated API servers: upstream's sample-apiserver as a process, and test servers, one of
// which replaces the built-in metrics API.
package aggregation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"proa.dev/test/upstream"
)

const wardleRoles = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: apiserver, namespace: wardle}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "wardle:system:auth-delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wardle-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: aggregated-apiserver-clusterrole}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, watch, list]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, watch, list]}
- {apiGroups: [flowcontrol.apiserver.k8s.io], resources: [prioritylevelconfigurations, flowschemas], verbs: [get, watch, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sample-apiserver-clusterrolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: aggregated-apiserver-clusterrole}
subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}]
`

const flunder = `
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: %s, labels: {sample-label: "true"}}
`

// TestSampleAPIServer registers upstream's sample server with only the permissions of its own manifests, uses it with kubectl, and
// kills it.
func TestSampleAPIServer(t *testing.T) {
	t.Parallel()
	bins := programs(t, "sample-apiserver", "etcd", "kubectl")
	at := hostAddress(t)
	c := start(t, bins)
	port := freePort(t)
	cert, key := selfSignedCert(t, "api.wardle.svc")
	c.run(apiService("v1alpha1", "wardle.example.com", "wardle", at, port, cert), "apply", "-f", "-")
	c.run(wardleRoles, "apply", "-f", "-")
	server := c.startSample(t, bins, at, port, cert, key)

	c.until("True", "get", "apiservice", "v1alpha1.wardle.example.com")
	if out := c.run("", "get", "apiservice", "v1alpha1.wardle.example.com", "-o", "jsonpath={.status.conditions[0].reason} {.status.conditions[0].message}"); out != "Passed all checks passed" {
		t.Errorf("the condition is %q", out)
	}
	c.until("flunders", "api-resources", "--api-group=wardle.example.com")
	c.run(fmt.Sprintf(flunder, "first"), "create", "-f", "-")
	if out := c.run("", "get", "flunders", "-o", "name"); !strings.HasSuffix(out, "flunder.wardle.example.com/first\n") {
		t.Errorf("there are %q", out)
	}
	c.until("DESCRIPTION", "explain", "flunders.spec")
	if out := c.run("", "get", "--raw", "/apis/wardle.example.com"); !strings.Contains(out, `"preferredVersion":{"groupVersion":"wardle.example.com/v1alpha1","version":"v1alpha1"}`) {
		t.Errorf("the group is %s", out)
	}
	c.checkWatch(t)

	// Both servers authorize each request; the sample server asks the cluster.
	if out := c.run("", "get", "flunders", "--as=bob", "-o", "name"); !strings.Contains(out, "first") {
		t.Errorf("bob sees %q", out)
	}
	for _, args := range [][]string{{"delete", "flunder", "first", "--as=bob"}, {"get", "flunders", "--as=eve"}} {
		if out, err := c.try("", args...); err == nil || !strings.Contains(out, "forbidden") {
			t.Errorf("kubectl %v: %s", args, out)
		}
	}

	server.kill()
	began := time.Now()
	if out, err := c.try("", "get", "flunders"); err == nil {
		t.Errorf("a dead server has answered: %s", out)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a dead server took %v", took)
	}
	c.run("", "get", "namespaces", "-o", "name") // other groups still work
	c.run("", "create", "configmap", "alive")
	c.until("FailedDiscoveryCheck", "get", "apiservice", "v1alpha1.wardle.example.com", "-o", "yaml")
	if out, err := c.try("", "get", "--raw", "/apis/wardle.example.com/v1alpha1/flunders"); err == nil ||
		!strings.Contains(out, "service unavailable") && !strings.Contains(out, "ServiceUnavailable") {
		t.Errorf("it says %q", out)
	}
	await(t, func() bool { return c.discoveryFreshness(t) == "Stale" })
	c.run("", "get", "configmap", "alive", "-o", "name")
	c.run("", "delete", "apiservice", "v1alpha1.wardle.example.com")
	await(t, func() bool { return !strings.Contains(c.run("", "get", "--raw", "/apis"), "wardle") })
}

// startSample starts etcd and the sample server, which authenticates to the cluster with the token of its service account.
func (c *cluster) startSample(t *testing.T, bins map[string]string, at string, port int, cert, key []byte) *process {
	t.Helper()
	dir := t.TempDir()
	etcd := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	launch(t, bins["etcd"], "--data-dir", dir+"/etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error")
	config, err := upstream.LoadConfig(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(c.run("", "-n", "wardle", "create", "token", "apiserver"))
	authority := writeFile(t, dir, "ca.crt", config.CAData)
	kubeconfig := writeFile(t, dir, "kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: x, user: {token: %q}}]
`, config.Host, authority, token))
	return launch(t, bins["sample-apiserver"], "--etcd-servers="+etcd, "--secure-port="+itoa(port), "--bind-address="+at,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--tls-cert-file="+writeFile(t, dir, "tls.crt", cert), "--tls-private-key-file="+writeFile(t, dir, "tls.key", key))
}

// checkWatch checks that a watch through both servers shows a new object.
func (c *cluster) checkWatch(t *testing.T) {
	t.Helper()
	p := launch(t, c.kubectl, "--kubeconfig", c.Kubeconfig, "get", "flunders", "--watch", "--output-watch-events", "--no-headers")
	lines := func() string { return p.output.String() }
	await(t, func() bool { return strings.Contains(lines(), "first") })
	c.run(fmt.Sprintf(flunder, "second"), "create", "-f", "-")
	await(t, func() bool { return strings.Contains(lines(), "second") })
	c.run("", "delete", "flunder", "second")
	await(t, func() bool { return strings.Contains(lines(), "DELETED") })
	p.kill()
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// discoveryFreshness returns the freshness of the group version in aggregated discovery.
func (c *cluster) discoveryFreshness(t *testing.T) string {
	t.Helper()
	group := c.discovered(t, "wardle.example.com")
	if group == nil {
		return "gone"
	}
	return string(group.Versions[0].Freshness)
}

package robustness

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestAgent joins a node by one of two servers, and checks that both reach its agent, also where they have no route to it, that the agent
// goes on with the second when the first is killed, and that it starts while the server is away that it was given.
func TestAgent(t *testing.T) {
	c := newCluster(t, 2)
	h := c.host("node")
	dir := t.TempDir()
	h.args = []string{c.proa, "agent", "--kubeconfig", filepath.Join(c.dir, "admin.kubeconfig"), "--data-dir", dir, "--node", "real",
		"--node-ip", h.ip}
	h.start()
	t.Cleanup(func() {
		h.kill()
		if out, err := exec.Command(c.proa, "down", "--data-dir", dir, "--purge").CombinedOutput(); err != nil {
			t.Errorf("remove the node: %v %s", err, out)
		}
	})
	get := func(at *host, path string) string {
		text, _ := send(t.Context(), c.admin, 5*time.Second, http.MethodGet, at.url(path), "")
		return string(text)
	}
	isReady := func(at *host) func() bool {
		return func() bool {
			return bytes.Contains([]byte(get(at, "/api/v1/nodes/real")), []byte(`"reason":"KubeletReady"`))
		}
	}
	reaches := func(at *host) func() bool {
		return func() bool { return get(at, "/api/v1/nodes/real/proxy/healthz") == "ok" }
	}
	renewed := func(at *host) func() bool {
		lease := get(at, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/real")
		return func() bool {
			now := get(at, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/real")
			return now != "" && now != lease
		}
	}
	for _, s := range c.servers {
		until(t, s.name+": the node is ready", time.Minute, isReady(s))
		until(t, s.name+" reaches the node", 30*time.Second, reaches(s))
	}
	if _, err := exec.LookPath("nft"); err == nil { // from now on no packet for the kubelet API gets in
		rule := "add table ip t; add chain ip t in { type filter hook input priority 0; }; add rule ip t in iifname eth0 tcp dport 10250 drop"
		if out, err := h.net.Command(t.Context(), "nft", rule).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		for _, s := range c.servers {
			until(t, s.name+" reaches the node by its tunnel", 30*time.Second, reaches(s))
		}
	}
	c.servers[0].kill()
	until(t, "the agent goes on with the other server", 30*time.Second, renewed(c.servers[1]))
	h.kill()
	h.start()
	until(t, "an agent that starts meanwhile goes on", time.Minute, renewed(c.servers[1]))
	until(t, "the node is ready", 30*time.Second, isReady(c.servers[1]))
}

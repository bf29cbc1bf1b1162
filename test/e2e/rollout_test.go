package e2e

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"proa.dev/test/chaos"
	"proa.dev/test/lab"
	"proa.dev/test/ports"
	"proa.dev/test/upstream"
)

// TestRollouts rolls out a Deployment twice while Pods on two nodes, a node, and a client outside the cluster send it requests, none
// of which may fail. "go run ./test/chaos/cmd rollouts" does that ten times.
func TestRollouts(t *testing.T) {
	bins := needNode(t)
	if why := lab.Missing(); why != "" {
		t.Skip(why)
	}
	port := ports.Strings(t, 1)[0]
	m := newMachine(t, bins, "--nodes", "2", "--ingress-http-port", port, "--ingress-https-port", "0")
	m.up()
	m.load(archives(t, "tool"))
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	out, err := chaos.Rollouts{Count: 2, Rate: 200, IngressPort: number}.Run(t.Context(), m.chaosCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.Text())
	if len(out.Failures) > 0 {
		t.Errorf("%d requests failed", len(out.Failures))
	}
	for _, total := range out.Totals {
		if total.Sent == 0 {
			t.Errorf("nothing was sent from %s to %s", total.From, total.URL)
		}
	}
}

// TestChaos kills an agent and a whole node and cuts a link under steady traffic, which must recover by itself. "go run
// ./test/chaos/cmd events" runs more events in random order.
func TestChaos(t *testing.T) {
	bins := needNode(t)
	if why := lab.Missing(); why != "" {
		t.Skip(why)
	}
	m := newMachine(t, bins, "--nodes", "2")
	m.up()
	m.load(archives(t, "tool"))
	kinds := []string{chaos.AgentKill, chaos.NodeKill, chaos.ShortCut}
	events, out, err := chaos.Events{
		Count: len(kinds), Kinds: kinds, InTurn: true, Rate: 60, Timeout: 10 * time.Second,
		Folder: func(node string) string { return filepath.Join(m.data(), "nodes", node) },
	}.Run(t.Context(), m.chaosCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s\n%s", chaos.EventTable(events), chaos.Table(out.Totals, out.Names))
	if events[0].Failed > 0 {
		t.Errorf("%d requests failed because an agent was killed; its Pods and rules stay", events[0].Failed)
	}
}

// chaosCluster returns the cluster as package chaos uses it.
func (m *machine) chaosCluster(t *testing.T) *chaos.Cluster {
	t.Helper()
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	tool, err := chaos.BuildTool(t.Context(), root, m.dir)
	if err != nil {
		t.Fatal(err)
	}
	return &chaos.Cluster{Kubectl: m.bins["kubectl"], Kubeconfig: m.kubeconfig(), Tool: tool, Log: t.Logf}
}

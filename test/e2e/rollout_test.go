package e2e

import (
	"testing"

	"proa.dev/test/chaos"
	"proa.dev/test/lab"
	"proa.dev/test/upstream"
)

// TestRollouts rolls a Deployment out twice while Pods, the node and the world outside send it requests: none may fail.
// "go run ./test/chaos/cmd rollouts" does that ten times.
func TestRollouts(t *testing.T) {
	bins := needNode(t)
	if why := lab.Missing(); why != "" {
		t.Skip(why)
	}
	m := newMachine(t, bins)
	m.up()
	m.load(archives(t, "tool"))
	out, err := chaos.Rollouts{Count: 2, Rate: 200, Number: 2}.Run(t.Context(), m.steady(t))
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

// steady is the cluster for those who send traffic to it.
func (m *machine) steady(t *testing.T) *chaos.Cluster {
	t.Helper()
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	tool, err := chaos.BuildTool(t.Context(), root, m.dir)
	if err != nil {
		t.Fatal(err)
	}
	return &chaos.Cluster{Kubectl: m.bins["kubectl"], Kubeconfig: m.kubeconfig(), Tool: tool, Say: t.Logf}
}

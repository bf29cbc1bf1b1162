package machine

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proa.dev/network/nodebridge"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// TestNodeWithoutBridgeIsNotReady checks that a node is not ready while packets to its Pods or to the other nodes do not reach their
// bridge, and that "proa status" tries that too.
func TestNodeWithoutBridgeIsNotReady(t *testing.T) {
	p := agentHost{refused: &refusedWatches{}}
	failures := func() (all []string) {
		for _, c := range p.checks() {
			if err := c.Run(); err != nil {
				all = append(all, c.Name+": "+err.Error())
			}
		}
		return all
	}
	if got := failures(); len(got) != 0 {
		t.Errorf("before the Pod network has started: %q", got)
	}
	p.podConfig.Store(&netpod.Config{Bridge: "tmissing0", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}})
	p.bridge = &nodebridge.Config{Bridge: "tmissing1", Networks: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/24")}}
	if got := strings.Join(failures(), "\n"); !strings.Contains(got, "the Pod network: the bridge tmissing0 does not exist") ||
		!strings.Contains(got, "the network between the nodes: the bridge tmissing1 does not exist") {
		t.Errorf("without bridges: %s", got)
	}

	c := &settings.Config{Nodes: 2}
	c.Node.Name, c.Node.NoProxy = "a", true
	dir := t.TempDir()
	c.DataDir = dir
	asked := func() (all []string) {
		for _, f := range AskNodes(t.Context(), dir, c, nil) {
			if f.Node == "a" {
				all = append(all, f.Part)
			}
		}
		return all
	}
	if got := asked(); !slices.Equal(got, []string{"network between the nodes"}) {
		t.Errorf("before the Pod network has started: %q fail", got)
	}
	if err := os.MkdirAll(filepath.Join(nodefolder.AgentDir(dir), "network"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := asked(); !slices.Equal(got, []string{"Pod network", "network between the nodes"}) {
		t.Errorf("without bridges: %q fail", got)
	}
}

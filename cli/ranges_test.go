package cli

import (
	"fmt"
	"os"
	"testing"

	proa "proa.dev/run"
)

// TestUpWithANodeSearchesForFreeNetworks: a new cluster with a node takes networks of its own where the usual ones are in use, however
// the node was asked for. What somebody has said stays, and what a cluster has that is there already.
func TestUpWithANodeSearchesForFreeNetworks(t *testing.T) {
	own := func(needed bool) ownRanges {
		return func(string) (string, string, bool) { return "10.130.0.0/16", "10.194.0.0/16", needed }
	}
	there := cluster{t.TempDir()}
	if err := os.WriteFile(there.file(settingsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := cluster{t.TempDir()}
	for _, c := range []struct {
		name   string
		in     cluster
		said   proa.Said
		needed bool
		want   string
	}{
		{"--node", fresh, proa.Said{"node": {"a"}}, true, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"--nodes", fresh, proa.Said{"node": {"a"}, "nodes": {"2"}}, true, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"nothing is in use", fresh, proa.Said{"node": {"a"}}, false, "[] []"},
		{"no node", fresh, proa.Said{"simulate": {"1"}}, true, "[] []"},
		{"somebody has chosen", fresh, proa.Said{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}}, true, "[10.9.0.0/16] []"},
		{"the cluster is there", there, proa.Said{"node": {"a"}}, true, "[] []"},
	} {
		note := chooseRanges(c.in, c.said, own(c.needed))
		if got := fmt.Sprint(c.said["cluster-cidr"], c.said["service-cidr"]); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if chosen := c.said["service-cidr"] != nil; chosen != (note != "") {
			t.Errorf("%s: the user is told %q", c.name, note)
		}
	}
}

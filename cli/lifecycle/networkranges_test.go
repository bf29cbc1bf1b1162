package lifecycle

import (
	"fmt"
	"os"
	"testing"

	"proa.dev/cli/localcluster"
	"proa.dev/run/settings"
)

// TestUpChoosesFreeNetworks checks that a new cluster with a node gets other networks if the default ones are in use. Networks that
// the user has chosen, and those of an existing cluster, are not changed.
func TestUpChoosesFreeNetworks(t *testing.T) {
	own := func(needed bool) ownRanges {
		return func(string) (string, string, bool) { return "10.130.0.0/16", "10.194.0.0/16", needed }
	}
	existing := localcluster.Cluster{Dir: t.TempDir()}
	if err := os.WriteFile(existing.Path(localcluster.SettingsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := localcluster.Cluster{Dir: t.TempDir()}
	for _, c := range []struct {
		name   string
		in     localcluster.Cluster
		values settings.Values
		needed bool
		want   string
	}{
		{"--node", fresh, settings.Values{"node": {"a"}}, true, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"--nodes", fresh, settings.Values{"node": {"a"}, "nodes": {"2"}}, true, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"nothing is in use", fresh, settings.Values{"node": {"a"}}, false, "[] []"},
		{"no node", fresh, settings.Values{"simulate": {"1"}}, true, "[] []"},
		{"chosen by the user", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}, "service-cidr": {"10.8.0.0/16"}}, true, "[10.9.0.0/16] [10.8.0.0/16]"},
		{"one chosen by the user", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}}, true, "[10.9.0.0/16] [10.194.0.0/16]"},
		{"the other one", fresh, settings.Values{"node": {"a"}, "service-cidr": {"10.9.0.0/16"}}, true, "[10.130.0.0/16] [10.9.0.0/16]"},
		{"IPv6", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16,fd00::/56"}}, true, "[10.9.0.0/16,fd00::/56] []"},
		{"the cluster exists", existing, settings.Values{"node": {"a"}}, true, "[] []"},
	} {
		before := len(c.values)
		note := chooseRanges(c.in, c.values, own(c.needed))
		if got := fmt.Sprint(c.values["cluster-cidr"], c.values["service-cidr"]); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if chosen := len(c.values) > before; chosen != (note != "") {
			t.Errorf("%s: the note for the user is %q", c.name, note)
		}
	}
}

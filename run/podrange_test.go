package run

import (
	"fmt"
	"testing"

	"proa.dev/run/settings"
)

// TestAllocateNodeCIDRs checks from which ranges the Pod networks of Nodes must be: those of the allocator, or none if the
// allocator does not run.
func TestAllocateNodeCIDRs(t *testing.T) {
	for _, c := range []struct {
		name  string
		given settings.Values
		want  string
	}{
		{"nothing given", settings.Values{}, "[{10.244.0.0/16 24}]"},
		{"other ranges", settings.Values{"cluster-cidr": {"10.9.0.0/16,fd00::/56"}}, "[{10.9.0.0/16 24} {fd00::/56 64}]"},
		{"many simulated nodes", settings.Values{"simulate": {"300"}}, "[{10.128.0.0/9 24}]"},
		{"administrators allocate", settings.Values{"allocate-node-cidrs": {"false"}}, "[]"},
		{"the controller does not run", settings.Values{"controllers": {"*,-node-controller"}}, "[]"},
	} {
		config := Default()
		for _, s := range settings.All() {
			if vs := c.given[s.Name]; len(vs) > 0 {
				if err := s.Set(&config.Config, vs); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := fmt.Sprint(config.allocated()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

package run

import (
	"fmt"
	"testing"
)

// TestAllocateNodeCIDRs says to which networks the API holds the writers of Nodes: to those of the allocator, as long as it runs.
func TestAllocateNodeCIDRs(t *testing.T) {
	for _, c := range []struct {
		name string
		said Said
		want string
	}{
		{"nothing said", Said{}, "[{10.244.0.0/16 24}]"},
		{"other ranges", Said{"cluster-cidr": {"10.9.0.0/16,fd00::/56"}}, "[{10.9.0.0/16 24} {fd00::/56 64}]"},
		{"many simulated nodes", Said{"simulate": {"300"}}, "[{10.128.0.0/9 24}]"},
		{"administrators allocate", Said{"allocate-node-cidrs": {"false"}}, "[]"},
		{"the loop does not run", Said{"controllers": {"*,-node-controller"}}, "[]"},
	} {
		config := Default()
		for _, s := range Settings() {
			if vs := c.said[s.Name]; len(vs) > 0 {
				if err := s.Set(&config, vs); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := fmt.Sprint(config.allocated()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

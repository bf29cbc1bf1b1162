package settings

import (
	"net/netip"
	"slices"

	"proa.dev/control/ipam"
)

// RunsController tells whether a controller shall run.
func (c *Config) RunsController(name string) bool {
	return len(c.Controllers) == 0 || !slices.Contains(c.Controllers, "-"+name) &&
		(slices.Contains(c.Controllers, name) || slices.Contains(c.Controllers, "*"))
}

// podRanges returns the ranges from which the networks of nodes are allocated. Many simulated nodes need more than the
// default range has.
func (c *Config) podRanges() []ipam.Range {
	if c.Simulate > 250 && len(c.PodRanges) == 0 {
		return []ipam.Range{{CIDR: netip.MustParsePrefix("10.128.0.0/9"), NodeMask: 24}}
	}
	if len(c.PodRanges) == 0 {
		return ipam.Default()
	}
	return c.PodRanges
}

// AllocatedRanges returns the ranges that the allocator divides into networks of nodes: none if administrators assign
// them.
func (c *Config) AllocatedRanges() []ipam.Range {
	if c.NodeCIDRsByHand {
		return nil
	}
	return c.podRanges()
}

// ClusterCIDRs returns the networks of all Pods.
func (c *Config) ClusterCIDRs() (out []netip.Prefix) {
	for _, r := range c.podRanges() {
		out = append(out, r.CIDR)
	}
	return out
}

package machine

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"

	"proa.dev/network/service"
	"proa.dev/node/eviction"
	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// OwnRanges returns networks for the Pods and Services of a new cluster if it cannot have the default ones: needed is
// true if another cluster has a node on this machine or is just getting one, or if the machine has an address in one of
// the default networks. Until this process ends, no other process gets the same networks.
func OwnRanges(dataDir string) (pods, services string, needed bool) {
	usual := run.Default()
	networks := append(usual.ClusterCIDRs(), usual.ServiceCIDRs...)
	taken := localAddresses()
	if !nodefolder.OtherClustersHere(dataDir) && !overlaps(taken, networks...) && ReserveRanges(networks) {
		return "", "", false
	}
	sum := sha256.Sum256([]byte(dataDir))
	pods, services = freeRanges(int(sum[0]), func(p, s netip.Prefix) bool {
		return !overlaps(taken, p, s) && ReserveRanges([]netip.Prefix{p, s})
	})
	return pods, services, true
}

// candidates is how many pairs of networks freeRanges tries.
const candidates = 60

// freeRanges returns the first pair of networks for Pods and Services that is free. The search begins at a pair that
// differs from cluster to cluster. If none is free, the first pair is returned.
func freeRanges(begin int, free func(pods, services netip.Prefix) bool) (pods, services string) {
	pair := func(i int) (pods, services netip.Prefix) {
		n := byte((begin + i) % candidates)
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + n}), 16), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 192 + n}), 16)
	}
	for i := range candidates {
		if p, s := pair(i); free(p, s) {
			return p.String(), s.String()
		}
	}
	p, s := pair(0)
	return p.String(), s.String()
}

func overlaps(taken []netip.Prefix, with ...netip.Prefix) bool {
	return slices.ContainsFunc(taken, func(t netip.Prefix) bool { return slices.ContainsFunc(with, t.Overlaps) })
}

// localAddresses returns the addresses of this machine, including those of bridges and DNS servers of other clusters.
// The networks of these addresses do not count, because many machines are in all of 10.0.0.0/8.
func localAddresses() (out []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return out
}

// evictionSettings returns the eviction thresholds of the node.
func evictionSettings(n *settings.NodeConfig) eviction.Settings {
	s := eviction.Settings{Hard: n.EvictionHard, Soft: n.EvictionSoft, SoftGrace: map[string]string{}}
	if s.Hard == nil {
		s.Hard = eviction.DefaultHardThresholds()
	}
	for signal, d := range n.EvictionGrace {
		s.SoftGrace[signal] = d.String()
	}
	return s
}

// traffic sets the settings of the service proxy.
func (p *agentHost) traffic(c *service.Config) {
	c.ExternalIPs, c.Balancers, c.ReservedPorts, c.Health = p.Traffic.ExternalIPs, p.BalancerRanges, p.ReservedPorts(), p.HealthAddress()
}

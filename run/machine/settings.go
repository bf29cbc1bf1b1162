package machine

import (
	"cmp"
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
	"strings"

	"proa.dev/network/service"
	"proa.dev/node/evict"
	"proa.dev/run"
)

// OwnRanges are networks for Pods and Services that a new cluster in a data folder can have on this machine, if it cannot have the usual
// ones: needed says that another cluster has a node here or is just getting one, or that the machine has an address in one of the usual networks.
// Until this process ends, no other one is given the same networks.
func OwnRanges(dataDir string) (pods, services string, needed bool) {
	usual := run.Default()
	networks := append(usual.ClusterCIDRs(), usual.ServiceCIDRs...)
	taken := localAddresses()
	if !othersHere(dataDir) && !overlaps(taken, networks...) && ReserveRanges(networks) {
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

// freeRanges are the first network for Pods and one for Services that are free together; the search begins at a place that differs from cluster to
// cluster. If none are free, the first pair is returned.
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

// localAddresses are the addresses that this machine has, those of bridges and of name servers of other clusters among them. The
// networks they are in do not count: many a machine is in all of 10.0.0.0/8.
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

// othersHere says that another cluster has Pods on this machine: the bridge of their network is there.
func othersHere(dataDir string) bool {
	links, err := net.Interfaces()
	if err != nil {
		return false
	}
	own := cmp.Or(networkOf(dataDir, "", nil).Bridge, "proa0")
	return slices.ContainsFunc(links, func(l net.Interface) bool { return strings.HasPrefix(l.Name, "proa") && l.Name != own })
}

// eviction are the thresholds of the node.
func eviction(n *run.NodeConfig) evict.Settings {
	s := evict.Settings{Hard: n.EvictionHard, Soft: n.EvictionSoft, SoftGrace: map[string]string{}}
	if s.Hard == nil {
		s.Hard = evict.Default()
	}
	for signal, d := range n.EvictionGrace {
		s.SoftGrace[signal] = d.String()
	}
	return s
}

// binDir is where the programs of the own runtime are.
func binDir(n *run.NodeConfig, dataDir string) (string, error) {
	if n.BinDir != "" {
		return n.BinDir, nil
	}
	return run.Programs(dataDir)
}

// traffic tells the service proxy what was set.
func (p *place) traffic(c *service.Config) {
	c.ExternalIPs, c.Balancers, c.Kept, c.Health = p.Traffic.ExternalIPs, p.BalancerRanges, p.KeptPorts(), p.HealthAddress()
}

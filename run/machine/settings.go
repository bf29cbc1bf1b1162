package machine

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"

	"proa.dev/network/service"
	"proa.dev/node/evict"
	"proa.dev/run"
)

// OwnRanges are networks for Pods and Services that the cluster of a data folder can have beside another one on this machine;
// needed says that there is one.
func OwnRanges(dataDir string) (pods, services string, needed bool) {
	sum := sha256.Sum256([]byte(dataDir))
	n := int(sum[0]) % 60
	return fmt.Sprintf("10.%d.0.0/16", 128+n), fmt.Sprintf("10.%d.0.0/16", 192+n), othersHere(dataDir)
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

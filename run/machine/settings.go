package machine

import (
	"proa.dev/network/service"
	"proa.dev/node/eviction"
	"proa.dev/run/settings"
)

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
	c.ExternalIPs, c.Balancers, c.ReservedPorts = p.Traffic.ExternalIPs, p.BalancerRanges, p.ReservedPorts()
	c.Health, c.Status = p.HealthAddress(), p.StatusAddress()
}

package run

import (
	"slices"

	"proa.dev/control/cloud"
	"proa.dev/control/cloud/nodeloadbalancer"
)

// loadBalancer returns the provider of load balancers for Services. If others provide them, the provider is off and takes back the
// addresses that it has given before.
func (s *Server) loadBalancer() cloud.Provider {
	addresses := []string{s.Listen}
	if s.listener != nil {
		addresses = append(addresses, s.listener.Addr().String())
	}
	p := nodeloadbalancer.Provider(s.ReservedBalancerPorts(addresses), slices.Concat(s.ServiceCIDRs, s.ClusterCIDRs()))
	p.Off = !s.BalancesOnNodes()
	return p
}

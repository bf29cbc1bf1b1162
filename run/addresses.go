package run

import (
	"net"
	"net/netip"

	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/run/hostaddress"
	"proa.dev/run/pki"
	"proa.dev/server/apiendpoints"
)

// Reachable returns the address to which the Service default/kubernetes leads. Endpoints may not be loopback addresses, so a server that
// listens only there gives the first other address of the machine.
func (s *Server) Reachable() netip.AddrPort { return s.Config.externalAddress(s.localAddress()) }

// externalAddress returns the address at which others reach what listens at a on this machine.
func (c *Config) externalAddress(a netip.AddrPort) netip.AddrPort {
	if c.InProcess && a.Addr().IsLoopback() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 2}), a.Port()) // an address for documentation, which nobody has
	}
	return hostaddress.External(a, c.Node.IPs, c.ServiceCIDRs)
}

// certificateNames returns the addresses and names for which the serving certificate must be valid.
func (s *Server) certificateNames() pki.Options {
	o := pki.Options{Hosts: s.ExtraSANs, ListenIPs: []netip.Addr{s.localAddress().Addr()}, Shared: len(s.EtcdServers) > 0}
	if s.podListener != nil {
		o.ListenIPs = append(o.ListenIPs, s.Reachable().Addr())
	}
	if s.listensEverywhere() {
		o.ListenIPs = append(o.ListenIPs, s.Reachable().Addr(), hostaddress.External(s.localAddress(), nil, nil).Addr())
	}
	for _, p := range s.ServiceCIDRs {
		o.ServiceIPs = append(o.ServiceIPs, apiendpoints.FirstIP(p))
	}
	return o
}

// localAddress returns the address at which clients on this machine reach the server.
func (s *Server) localAddress() netip.AddrPort {
	if s.listener == nil {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 6443)
	}
	a := s.listener.Addr().(*net.TCPAddr).AddrPort()
	if a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// nodeFacts returns what the addresses that nodes claim are checked against.
func (s *Server) nodeFacts() nodeaddress.Cluster {
	c := s.reservedAddresses()
	c.Ranges, c.Servers = s.NodeRanges, []netip.Addr{s.Reachable().Addr()}
	c.Machine, c.Assigned = hostaddress.OfMachine, s.assignedAddresses
	if s.pki == nil {
		return c
	}
	cert := s.pki.Serving().Cert
	c.ServingNames = cert.DNSNames
	for _, ip := range cert.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			c.ServingAddresses = append(c.ServingAddresses, a.Unmap())
		}
	}
	return c
}

// reservedAddresses returns the ranges and names that no node may claim.
func (c *Config) reservedAddresses() nodeaddress.Cluster {
	return nodeaddress.Cluster{Services: c.ServiceCIDRs, Pods: c.ClusterCIDRs(), Domain: c.Node.ClusterDomain}
}

// assignedAddresses returns the addresses that the server itself gives to a node: to that of this process, and to
// further ones of the machine.
func (s *Server) assignedAddresses(node string) []netip.Addr {
	switch {
	case s.Machine == nil || s.Node.Name == "":
		return nil
	case node != s.Node.Name:
		return s.Machine.NodeAddresses(node)
	case len(s.Node.IPs) > 0:
		return s.Node.IPs
	}
	return []netip.Addr{s.Reachable().Addr()}
}

package run

import (
	"fmt"
	"net"
	"net/netip"

	"proa.dev/kinds/nodeaddress"
)

// nodeFacts is what the addresses that nodes claim are checked against.
func (s *Server) nodeFacts() nodeaddress.Cluster {
	c := s.reservedAddresses()
	c.Ranges, c.Servers = s.NodeRanges, []netip.Addr{s.Reachable().Addr()}
	c.Machine, c.Assigned = machineAddresses, s.assignedAddresses
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

// reservedAddresses are the ranges and names that no node may claim.
func (c *Config) reservedAddresses() nodeaddress.Cluster {
	return nodeaddress.Cluster{Services: c.ServiceCIDRs, Pods: c.ClusterCIDRs(), Domain: c.Node.ClusterDomain}
}

// assignedAddresses are those that the server itself gives to a node: the one of this process, and further ones of the machine.
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

// machineAddresses are the addresses of the interfaces of this machine.
func machineAddresses() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // then the machine is known by nothing but the address that a request comes from
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}

// parseNodeRanges reads the networks whose addresses nodes may claim.
func parseNodeRanges(vs []string) (out []netip.Prefix, err error) {
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a network such as 192.168.10.0/24", v)
		case p != p.Masked():
			return nil, fmt.Errorf("%q has bits after its length; did you mean %s", v, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}

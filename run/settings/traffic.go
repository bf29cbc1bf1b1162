package settings

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/cloud/nodeloadbalancer"
	"proa.dev/run/datafolder"
)

// Traffic configures how Services and DNS work on a node.
type Traffic struct {
	// ExternalIPs are the ranges of external IPs that Services may have. BalancerRanges are the ranges of load balancer
	// addresses that are served when another program than the server has written them into the status of a Service.
	ExternalIPs, BalancerRanges []netip.Prefix
	// Healthz is the address of the health endpoint of the service proxy; "off" for none.
	Healthz string
	// Status is the address at which the service proxy tells its mode; "off" for none.
	Status string
	// Stubs has the DNS servers of zones that are not looked up at the node's own servers.
	Stubs map[string][]string
	// CNIConf is the folder where another program puts the CNI configuration of its network for Pods; empty for proa's
	// own network. CNIBins are folders of CNI plugins.
	CNIConf string
	CNIBins []string
	// NoProxy is set where another program implements Services.
	NoProxy bool
	// Cloud is set where the controllers of a cloud initialise nodes. ProviderID is the identifier of this one; empty
	// lets those controllers find it.
	Cloud      bool
	ProviderID string
}

// The load balancers that there are.
const (
	balancerNodes = nodeloadbalancer.Name
	balancerNone  = "none"
)

const (
	defaultHealthz = ":10256" // of both families
	defaultStatus  = "127.0.0.1:10249"
	nowhere        = "off"
)

// balancerSettings returns the setting about load balancers that the control plane has.
func balancerSettings() []Setting {
	return []Setting{{Name: "load-balancer", Help: "give Services of type LoadBalancer the addresses of `WHAT`: nodes, or none if another program gives them addresses",
		Set: setOne(func(c *Config, v string) error {
			c.LoadBalancer = v
			return oneOf(v, balancerNodes, balancerNone)
		})}}
}

// trafficSettings returns the settings of nodes about Services and DNS.
func trafficSettings() []Setting {
	on := func(set func(*Traffic, string) error) func(*Config, []string) error {
		return setOne(func(c *Config, v string) error { return set(&c.Node.Traffic, v) })
	}
	return []Setting{
		{Name: "load-balancer-ranges", Help: "on nodes, serve load balancer addresses in `CIDR,...` that other programs write into the status of Services; other addresses are served only if the server itself has given them", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.BalancerRanges, err = parseRanges(splitLists(vs))
				return err
			}},
		{Name: "external-ip-ranges", Help: "serve the external IPs of Services that are in `CIDR,...` (default none)", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Traffic.ExternalIPs, err = parseRanges(splitLists(vs))
				return err
			}},
		{Name: "proxy-healthz", Help: "serve the health of the node's service proxy for load balancers at `ADDR:PORT`; off disables it (default :10256)",
			Set: on(func(t *Traffic, v string) (err error) {
				if t.Healthz = v; v != nowhere {
					t.Healthz, err = parseListen(v)
				}
				return err
			})},
		{Name: "proxy-status", Help: "serve /proxyMode and /healthz of the node's service proxy, as kube-proxy does beside its metrics, at `ADDR:PORT`; off disables it (default 127.0.0.1:10249)",
			Set: on(func(t *Traffic, v string) (err error) {
				if t.Status = v; v != nowhere {
					t.Status, err = parseListen(v)
				}
				return err
			})},
		{Name: "stub-domain", Help: "forward DNS queries for a zone to a server: `ZONE=IP[:PORT]`; several servers of a zone are tried in order", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.Stubs, err = parseStubs(splitLists(vs)); return err }},
		{Name: "cni-conf-dir", Help: "let another program connect Pods: the runtime uses the CNI configuration in `DIR`, for example /etc/cni/net.d; proa's own network and its network policies are off",
			Set: on(func(t *Traffic, v string) (err error) { t.CNIConf, err = datafolder.Absolute(v); return err })},
		{Name: "cni-bin-dir", Help: "find CNI plugins in `DIR` too, beside /opt/cni/bin", Many: true,
			Set: func(c *Config, vs []string) error {
				c.Node.CNIBins = nil
				for _, v := range splitLists(vs) {
					dir, err := datafolder.Absolute(v)
					if err != nil {
						return err
					}
					c.Node.CNIBins = append(c.Node.CNIBins, dir)
				}
				return nil
			}},
		{Name: "service-proxy", Help: "`WHO` implements Services on nodes: proa, or none if another program does",
			Set: on(func(t *Traffic, v string) error {
				t.NoProxy = v == "none"
				return oneOf(v, "proa", "none")
			})},
		{Name: "cloud-provider", Help: "`WHO` initialises nodes: external for the controllers of a cloud, which run beside proa; new nodes are tainted until they have, and load balancers are left to them",
			Set: on(func(t *Traffic, v string) error {
				t.Cloud = true
				return oneOf(v, "external")
			})},
		{Name: "provider-id", Help: "`ID` of the node's machine at the cloud provider; without it the cloud's controllers find it",
			Set: on(func(t *Traffic, v string) error { t.ProviderID = v; return nil })},
	}
}

// Ports that no Service may take on a node.
const (
	sshPort        = 22
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	tunnelPort     = 8472 // of the tunnels between nodes of different networks
)

// ReservedPorts returns the ports of the node that no Service may take.
func (n *NodeConfig) ReservedPorts() []uint16 {
	reserved := []uint16{sshPort, etcdClientPort, etcdPeerPort, uint16(n.Port), tunnelPort}
	if port, ok := portOf(n.HealthAddress()); ok {
		reserved = append(reserved, port)
	}
	return reserved
}

// HealthAddress returns the address of the health endpoint of the service proxy; empty for none.
func (t *Traffic) HealthAddress() string {
	if t.Healthz == nowhere {
		return ""
	}
	return cmp.Or(t.Healthz, defaultHealthz)
}

// StatusAddress returns the address at which the service proxy tells its mode; empty for none.
func (t *Traffic) StatusAddress() string {
	if t.Status == nowhere {
		return ""
	}
	return cmp.Or(t.Status, defaultStatus)
}

func portOf(address string) (uint16, bool) {
	_, text, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && bad == nil && n > 0
}

// ReservedBalancerPorts returns the ports that the load balancer on the nodes may not take, with the part of the system that uses each.
// addresses are those at which the API server listens.
func (c *Config) ReservedBalancerPorts(addresses []string) []nodeloadbalancer.Port {
	tcp := func(port uint16, owner string) nodeloadbalancer.Port {
		return nodeloadbalancer.Port{Protocol: corev1.ProtocolTCP, Number: int32(port), Owner: owner}
	}
	usual := defaultNode().Port
	reserved := []nodeloadbalancer.Port{
		tcp(sshPort, "SSH"), tcp(etcdClientPort, "etcd"), tcp(etcdPeerPort, "etcd"), tcp(uint16(usual), "the node agent"),
		{Protocol: corev1.ProtocolUDP, Number: tunnelPort, Owner: "the tunnels between nodes"},
	}
	if c.Node.Port != 0 && c.Node.Port != usual {
		reserved = append(reserved, tcp(uint16(c.Node.Port), "the node agent"))
	}
	if port, ok := portOf(c.Node.HealthAddress()); ok {
		reserved = append(reserved, tcp(port, "the health of the service proxy"))
	}
	for _, address := range addresses {
		if port, ok := portOf(address); ok {
			reserved = append(reserved, tcp(port, "the API server"))
		}
	}
	return slices.Compact(reserved)
}

// BalancesOnNodes tells whether the nodes themselves are the load balancers of Services: unless a cloud or another program is.
func (c *Config) BalancesOnNodes() bool {
	return c.LoadBalancer != balancerNone && (c.LoadBalancer != "" || !c.Node.Cloud)
}

package run

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/balancer"
	"proa.dev/control/cloud"
)

// Traffic is how Services and names are reached on a node.
type Traffic struct {
	// ExternalIPs are the networks whose addresses Services may have as external IPs, BalancerRanges those whose addresses are
	// served when somebody else than the server writes them into the status of a Service.
	ExternalIPs, BalancerRanges []netip.Prefix
	// Healthz is where the service proxy tells how it is; "off" for nowhere.
	Healthz string
	// Stubs are the servers of zones that are not asked of the node's own.
	Stubs map[string][]string
	// CNIConf is where another program puts the configuration of its network for Pods; empty for proa's own network. CNIBins
	// have network plugins.
	CNIConf string
	CNIBins []string
	// NoProxy is set where another program makes Services work.
	NoProxy bool
	// Cloud is set where the controllers of a cloud describe nodes; ProviderID is how it calls this one, empty to let them say.
	Cloud      bool
	ProviderID string
}

// The load balancers that there are.
const (
	balancedByNodes  = balancer.Name
	balancedByOthers = "none"
)

const (
	usualHealthz = ":10256" // of both families
	nowhere      = "off"
)

// balancerSettings is the one about load balancers that the control plane has.
func balancerSettings() []Setting {
	return []Setting{{Name: "load-balancer", Help: "give Services of type LoadBalancer the addresses of `WHAT`: nodes, or none where others do that",
		Set: one(func(c *Config, v string) error {
			c.LoadBalancer = v
			return oneOf(v, balancedByNodes, balancedByOthers)
		})}}
}

// trafficSettings are those of nodes about Services and names.
func trafficSettings() []Setting {
	on := func(set func(*Traffic, string) error) func(*Config, []string) error {
		return one(func(c *Config, v string) error { return set(&c.Node.Traffic, v) })
	}
	return []Setting{
		{Name: "load-balancer-ranges", Help: "serve the addresses in `CIDR,...` that others write into the status of Services as load balancers; besides them only addresses of nodes are, which the server itself has given", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.BalancerRanges, err = parseRanges(split(vs))
				return err
			}},
		{Name: "external-ip-ranges", Help: "serve the external IPs of Services that are in `CIDR,...`; none if not said", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Traffic.ExternalIPs, err = parseRanges(split(vs))
				return err
			}},
		{Name: "proxy-healthz", Help: "tell load balancers at `ADDR:PORT` whether Services work on the node; off for nowhere",
			Set: on(func(t *Traffic, v string) (err error) {
				if t.Healthz = v; v != nowhere {
					t.Healthz, err = parseListen(v)
				}
				return err
			})},
		{Name: "stub-domain", Help: "ask the server at an address for the names of a zone, as `ZONE=IP[:PORT]`; several for a zone are asked in turn", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.Stubs, err = parseStubs(split(vs)); return err }},
		{Name: "cni-conf-dir", Help: "let another program connect Pods: the runtime takes the configuration that it finds in `DIR`, for example /etc/cni/net.d; proa's own network and its network policies are off",
			Set: on(func(t *Traffic, v string) (err error) { t.CNIConf, err = absolute(v); return err })},
		{Name: "cni-bin-dir", Help: "find network plugins in `DIR` too, beside /opt/cni/bin", Many: true,
			Set: func(c *Config, vs []string) error {
				c.Node.CNIBins = nil
				for _, v := range split(vs) {
					dir, err := absolute(v)
					if err != nil {
						return err
					}
					c.Node.CNIBins = append(c.Node.CNIBins, dir)
				}
				return nil
			}},
		{Name: "service-proxy", Help: "`WHO` makes Services work on nodes: proa, or none where another program does",
			Set: on(func(t *Traffic, v string) error {
				t.NoProxy = v == "none"
				return oneOf(v, "proa", "none")
			})},
		{Name: "cloud-provider", Help: "`WHO` describes nodes: external for the controllers of a cloud, which run beside proa; new nodes wait for them, and load balancers are theirs",
			Set: on(func(t *Traffic, v string) error {
				t.Cloud = true
				return oneOf(v, "external")
			})},
		{Name: "provider-id", Help: "the cloud calls the machine of the node `ID`; its controllers say it if not said",
			Set: on(func(t *Traffic, v string) error { t.ProviderID = v; return nil })},
	}
}

func parseRanges(vs []string) (out []netip.Prefix, err error) {
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		if err != nil {
			if ip, bad := netip.ParseAddr(v); bad == nil {
				p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither a range such as 203.0.113.0/24 nor an address", v)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func parseStubs(vs []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, v := range vs {
		zone, server, ok := strings.Cut(v, "=")
		_, err := netip.ParseAddrPort(server)
		if _, bare := netip.ParseAddr(strings.Trim(server, "[]")); err != nil && bare == nil {
			err = nil
		}
		if !ok || err != nil || checkName(strings.TrimSuffix(zone, ".")) != nil {
			return nil, fmt.Errorf("%q is not ZONE=IP or ZONE=IP:PORT, for example corp.example.org=10.0.0.53", v)
		}
		out[zone] = append(out[zone], server)
	}
	return out, nil
}

// Ports that every machine needs for itself.
const (
	ssh         = 22
	etcdClients = 2379
	etcdPeers   = 2380
	tunnels     = 8472 // between nodes that are not on one link
)

// KeptPorts are those that no Service gets on the node.
func (n *NodeConfig) KeptPorts() []uint16 {
	kept := []uint16{ssh, etcdClients, etcdPeers, uint16(n.Port), tunnels}
	if port, ok := portOf(n.HealthAddress()); ok {
		kept = append(kept, port)
	}
	return kept
}

// HealthAddress is where the service proxy tells how it is; empty for nowhere.
func (t *Traffic) HealthAddress() string {
	if t.Healthz == nowhere {
		return ""
	}
	return orElse(t.Healthz, usualHealthz)
}

func orElse(v, other string) string {
	if v == "" {
		return other
	}
	return v
}

func portOf(address string) (uint16, bool) {
	_, text, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && bad == nil && n > 0
}

// cloud is who gives load balancers to Services. Where that is somebody else, what we gave is taken back.
func (s *Server) cloud() cloud.Provider {
	tcp := func(port uint16, owner string) balancer.Port {
		return balancer.Port{Protocol: corev1.ProtocolTCP, Number: int32(port), Owner: owner}
	}
	kept := []balancer.Port{
		tcp(ssh, "SSH"), tcp(etcdClients, "etcd"), tcp(etcdPeers, "etcd"), tcp(uint16(defaultNode().Port), "the node agent"),
		{Protocol: corev1.ProtocolUDP, Number: tunnels, Owner: "the tunnels between nodes"},
	}
	if s.Node.Port != 0 && s.Node.Port != defaultNode().Port {
		kept = append(kept, tcp(uint16(s.Node.Port), "the node agent"))
	}
	if port, ok := portOf(s.Node.HealthAddress()); ok {
		kept = append(kept, tcp(port, "the health of the service proxy"))
	}
	for _, address := range s.addresses() {
		if port, ok := portOf(address); ok {
			kept = append(kept, tcp(port, "the API server"))
		}
	}
	p := balancer.Provider(slices.Compact(kept), slices.Concat(s.ServiceCIDRs, s.ClusterCIDRs()))
	p.Off = s.LoadBalancer == balancedByOthers || s.LoadBalancer == "" && s.Node.Cloud
	return p
}

// addresses are where the API server listens, or will.
func (s *Server) addresses() (out []string) {
	out = append(out, s.Listen)
	if s.listener != nil {
		out = append(out, s.listener.Addr().String())
	}
	return out
}

package servicetable

import (
	"net/netip"
	"time"
)

// Port is one port of a Service in one address family, with where its packets go on this node.
type Port struct {
	Name     string // namespace/name:port
	Protocol uint8  // the number of the IP protocol
	IPv6     bool
	Created  time.Time // when the Service was created

	ClusterIP netip.Addr
	// VIPs are the addresses of the Service. NodePort is a port that leads to it at every address of the node, NodePortTarget says where.
	VIPs           []VIP
	NodePort       uint16
	NodePortTarget Target

	// Cluster and Local are the endpoints of the targets ToCluster and ToLocal, sorted.
	Cluster, Local []netip.AddrPort
	// External says where the target ToExternal leads.
	External ExternalPolicy
	Affinity time.Duration  // of clients to endpoints; 0 for none
	Sources  []netip.Prefix // the networks that ToFirewall lets pass; all if empty
	Hairpin  []netip.Addr   // the endpoints that may be on this node
	Serving  []netip.AddrPort

	// unused are the endpoints in Serving that no packet was sent to from here. The table fills it in.
	unused []netip.AddrPort
}

// VIP is an address and port of a Service, and where packets to it go.
type VIP struct {
	Addr   netip.Addr
	Port   uint16
	Target Target
}

// Target says where packets for an address of a Service go.
type Target string

// The targets.
const (
	ToCluster  Target = "cluster"  // any endpoint
	ToLocal    Target = "local"    // an endpoint on this node
	ToExternal Target = "external" // where traffic from outside goes, see Port.External
	ToFirewall Target = "firewall" // the same for the allowed sources; others are dropped
	ToReject   Target = "reject"   // an ICMP error or TCP reset: there are no endpoints
	ToDrop     Target = "drop"     // no answer: other nodes may have endpoints
)

// ExternalPolicy is the external traffic policy of a Service as it applies to this node.
type ExternalPolicy string

// The external traffic policies.
const (
	ExternalNone       ExternalPolicy = "" // there is no traffic from outside
	ExternalCluster    ExternalPolicy = "Cluster"
	ExternalLocal      ExternalPolicy = "Local"
	ExternalLocalEmpty ExternalPolicy = "Local without endpoints" // this node has none of the endpoints
)

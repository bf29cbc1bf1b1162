// Package nodeaddress decides which addresses a node may have in its status.addresses. A node is not trusted about itself: an address
// must be the source address of its connection to the API server, be given to it by the server, or be allowed by an administrator.
// No node may have addresses of Services and Pods, of the API server, or of other nodes, whoever allows them.
//
// Admission calls Check when a node writes its own Node, and the approval of kubelet serving certificates calls Cluster.Reserved
// too, so that either of the two keeps a node from impersonating another machine.
package nodeaddress

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotation holds the further addresses that an administrator allows a node: IP addresses, CIDRs and DNS names,
// separated by commas. A node may never set or change it on its own Node.
const Annotation = "proa.dev/addresses"

// Cluster is what the addresses of nodes are checked against.
type Cluster struct {
	// Services are the ranges of cluster IPs, and Pods those of Pod IPs.
	Services, Pods []netip.Prefix
	// Ranges are the networks whose addresses nodes may claim although the server does not see them (--node-address-ranges).
	Ranges []netip.Prefix
	// Domain is the DNS domain of the cluster; empty for cluster.local.
	Domain string
	// Servers are the addresses at which API servers are reached, the endpoints of the Service default/kubernetes.
	Servers []netip.Addr
	// ServingAddresses and ServingNames are those of the API server's certificate.
	ServingAddresses []netip.Addr
	ServingNames     []string
	// Machine returns the addresses of the interfaces of the server's machine; nil for none.
	Machine func() []netip.Addr
	// Assigned returns the addresses that the server itself has given to a node that it runs, and nil for any other
	// node.
	Assigned func(node string) []netip.Addr
}

// Claim is a Node as the node itself wants to write it.
type Claim struct {
	// Node is the wanted Node, and Stored the one that is there; nil if the Node is created.
	Node, Stored *corev1.Node
	// Remote is the address from which the server sees the request come; the zero value for a caller in the server's process.
	Remote netip.Addr
	// Others are all Nodes of the cluster; this one among them does not count.
	Others iter.Seq[*corev1.Node]
}

// Refusal is an address that a node may not have.
type Refusal struct {
	// Field is the path of the address in the Node, such as status.addresses[0].address.
	Field, Address, Reason string
}

func (r Refusal) Error() string {
	if r.Field == nameField {
		return fmt.Sprintf("name %q: %s", r.Address, r.Reason)
	}
	return fmt.Sprintf("address %q: %s", r.Address, r.Reason)
}

// nameField is the path of the name of a Node.
const nameField = "metadata.name"

// IsNew reports whether a Node claims an address that the stored one does not have, or a name that is not there yet.
func (c *Claim) IsNew() bool {
	return c.Stored == nil || slices.ContainsFunc(c.Node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return !c.isStored(a.Address) })
}

func (c *Claim) isStored(address string) bool {
	return c.Stored != nil && hasAddress(c.Stored, address)
}

// Check returns the first address of a claim that the node may not have, and nil if there is none.
func Check(cluster *Cluster, claim *Claim) *Refusal {
	name := claim.Node.Name
	if claim.Stored == nil {
		if reason := cluster.nodeName(claim, name); reason != "" {
			return &Refusal{nameField, name, reason}
		}
	}
	for i, a := range claim.Node.Status.Addresses {
		var reason string
		if ip, err := parse(a.Address); err == nil {
			reason = cluster.checkIP(claim, ip)
		} else {
			reason = cluster.checkName(claim, a.Address)
		}
		if reason != "" {
			return &Refusal{fmt.Sprintf("status.addresses[%d].address", i), a.Address, reason}
		}
	}
	return nil
}

// checkIP returns why a node may not have an IP address; empty if it may.
func (c *Cluster) checkIP(claim *Claim, ip netip.Addr) string {
	name := claim.Node.Name
	switch assigned := slices.Contains(c.assigned(name), ip); {
	case unreachableReason(ip) != "":
		return unreachableReason(ip)
	case assigned:
		return ""
	case c.reservedIP(ip) != "":
		return c.reservedIP(ip)
	case claim.isStored(ip.String()):
		return ""
	}
	if other := otherOwner(claim, ip.String()); other != "" {
		return fmt.Sprintf("the node %s has it; if that node is gone, delete it: kubectl delete node %s", other, other)
	}
	onMachine := c.isLocal(claim.Remote) && slices.Contains(c.machine(), ip)
	seen := claim.Remote.IsValid() && claim.Remote == ip
	if c.isServer(ip) && !onMachine && !(seen && slices.Contains(c.Servers, ip)) {
		return "it is an address of the API server"
	}
	allowed := func(p netip.Prefix) bool { return p.Contains(ip) }
	if seen || onMachine || slices.ContainsFunc(c.Ranges, allowed) || slices.ContainsFunc(allowedBy(claim.Stored).networks, allowed) {
		return ""
	}
	return fmt.Sprintf("the server sees the node at %s, and nobody else has said that the node has this address; let the agent connect from it (--node-ip), "+
		"allow it with kubectl annotate node %s %s=%s, or start the servers with --node-address-ranges and a network that contains it",
		seenAt(claim.Remote), name, Annotation, ip)
}

// checkName returns why a node may not have a DNS name among its addresses; empty if it may.
func (c *Cluster) checkName(claim *Claim, text string) string {
	name, node := canonical(text), canonical(claim.Node.Name)
	switch {
	case name == node:
		return c.nodeName(claim, text)
	case c.reservedName(name) != "":
		return c.reservedName(name)
	case claim.isStored(text):
		return ""
	case slices.Contains(c.ServingNames, name):
		return "it is a name of the API server"
	}
	if other := otherOwner(claim, name); other != "" {
		return "it is a name of the node " + other
	}
	if slices.Contains(allowedBy(claim.Stored).names, name) {
		return ""
	}
	return fmt.Sprintf("a node has no name but its own, %s, unless an administrator allows it: kubectl annotate node %s %s=%s", node, claim.Node.Name, Annotation, name)
}

// nodeName returns why a node may not have a name; empty if it may. The nodes of the server's own machine may have
// the name of the machine, which is a name of the API server too.
func (c *Cluster) nodeName(claim *Claim, text string) string {
	name := canonical(text)
	switch {
	case c.assigned(claim.Node.Name) != nil:
		return ""
	case c.reservedName(name) != "":
		return c.reservedName(name)
	case claim.Stored == nil && slices.Contains(c.ServingNames, name) && !c.isLocal(claim.Remote):
		return "it is a name of the API server; give the node another name with --node"
	case claim.Stored != nil:
		return ""
	}
	// The name of a Node counts as one of its addresses (see Owns), so a name that is somebody else's address would keep the other
	// node from that address and from certificates for it.
	if other := otherOwner(claim, name); other != "" {
		return fmt.Sprintf("it is an address of the node %s; give this node another name with --node", other)
	}
	if ip, err := parse(name); err == nil && c.checkIP(claim, ip) != "" {
		return fmt.Sprintf("it is an IP address, and not one that the node may have: the server sees the node at %s; give the node another name with --node", seenAt(claim.Remote))
	}
	return ""
}

// Reserved returns why no node may have an address or a DNS name, whoever allows it; empty if a node may.
func (c *Cluster) Reserved(address string) string {
	ip, err := parse(address)
	if err != nil {
		return c.reservedName(canonical(address))
	}
	if why := unreachableReason(ip); why != "" {
		return why
	}
	return c.reservedIP(ip)
}

// isServer reports whether an API server is reached at an address: its own, or that of a load balancer in front of
// it, which is in its certificate. Behind a load balancer that translates addresses, every node seems to come from
// it.
func (c *Cluster) isServer(ip netip.Addr) bool {
	return slices.Contains(c.Servers, ip) || slices.Contains(c.ServingAddresses, ip)
}

// unreachableReason returns why other machines cannot reach a machine at an IP address; empty if they can.
func unreachableReason(ip netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "it is a loopback address"
	case ip.IsUnspecified():
		return "it is the unspecified address"
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is a multicast or broadcast address"
	case ip.IsLinkLocalUnicast():
		return "it is a link-local address"
	}
	return ""
}

func (c *Cluster) reservedIP(ip netip.Addr) string {
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case slices.ContainsFunc(c.Services, contains):
		return "it is in the range of Services"
	case slices.ContainsFunc(c.Pods, contains):
		return "it is in the range of Pods"
	}
	return ""
}

// reservedName is ReservedName for the domain of the cluster.
func (c *Cluster) reservedName(name string) string { return ReservedName(name, c.Domain) }

// ReservedName returns why no node may have a DNS name, by which clients know the API server, a Service or their own
// machine; empty if a node may. The name is in lower case, and domain is that of the cluster; empty for
// cluster.local.
func ReservedName(name, domain string) string {
	if domain = canonical(domain); domain == "" {
		domain = "cluster.local"
	}
	if slices.Contains([]string{"kubernetes", "kubernetes.default", "localhost", "localhost.localdomain", "svc", domain}, name) {
		return "it is a name of the cluster itself"
	}
	if strings.Contains(name, ".svc.") {
		return "it is a name of a Service, which only the cluster itself gives"
	}
	for _, under := range []string{"localhost", "svc", domain} {
		if strings.HasSuffix(name, "."+under) {
			return "it is a name below ." + under + ", which only the cluster itself gives"
		}
	}
	return ""
}

// isLocal reports whether a request comes from the server's own machine.
func (c *Cluster) isLocal(remote netip.Addr) bool {
	return !remote.IsValid() || remote.IsLoopback() || slices.Contains(c.machine(), remote)
}

func (c *Cluster) machine() []netip.Addr {
	if c.Machine == nil {
		return nil
	}
	return c.Machine()
}

func (c *Cluster) assigned(node string) []netip.Addr {
	if c.Assigned == nil {
		return nil
	}
	return c.Assigned(node)
}

// otherOwner returns the name of another Node that has an address; empty if none has.
func otherOwner(claim *Claim, address string) string {
	if claim.Others == nil {
		return ""
	}
	for n := range claim.Others {
		if n.Name != claim.Node.Name && Owns(n, address) {
			return n.Name
		}
	}
	return ""
}

// Owns reports whether an address or a DNS name belongs to a Node: it is in its status, or its name.
func Owns(n *corev1.Node, address string) bool {
	return canonical(address) == n.Name || hasAddress(n, address)
}

// hasAddress reports whether a Node has an address in its status, in any notation.
func hasAddress(n *corev1.Node, address string) bool {
	want, err := parse(address)
	return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
		if err != nil {
			return canonical(a.Address) == canonical(address)
		}
		ip, err := parse(a.Address)
		return err == nil && ip == want
	})
}

// allowance is the content of the annotation by which an administrator allows addresses.
type allowance struct {
	networks []netip.Prefix
	names    []string
}

// allowedBy parses the annotation of a stored Node. A part that is neither an address nor a network is a name.
func allowedBy(n *corev1.Node) (out allowance) {
	if n == nil {
		return out
	}
	for part := range strings.SplitSeq(n.Annotations[Annotation], ",") {
		part = strings.TrimSpace(part)
		if ip, err := parse(part); err == nil {
			out.networks = append(out.networks, netip.PrefixFrom(ip, ip.BitLen()))
		} else if p, err := netip.ParsePrefix(part); err == nil {
			out.networks = append(out.networks, p.Masked())
		} else if part != "" {
			out.names = append(out.names, canonical(part))
		}
	}
	return out
}

// parse parses an IP address. It converts IPv4-mapped IPv6 addresses to IPv4 and drops the zone.
func parse(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err
}

// canonical returns a DNS name in the form for comparing: in lower case, without the dot at its end.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func seenAt(remote netip.Addr) string {
	if !remote.IsValid() {
		return "its own machine"
	}
	return remote.String()
}

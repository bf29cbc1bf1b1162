package nodeloadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/nodeaddress"
)

// maxNodes bounds the nodes whose addresses a Service gets, because they are all in its status.
const maxNodes = 64

// world has all objects that a decision about one Service depends on.
type world struct {
	service *corev1.Service
	// nodes are the nodes that may be backends of load balancers, ready or not, sorted by name.
	nodes []*corev1.Node
	// claimants are all nodes, including those excluded from load balancers, which keep their addresses from other nodes.
	claimants []*corev1.Node
	slices    []*discoveryv1.EndpointSlice // of the Service
	others    []*corev1.Service            // all Services that want an address of nodes, including this one
	reserved  []Port
	ranges    []netip.Prefix // the networks of Pods and Services, in which no node has an address
	// nodePorts, pods and ingresses may use one of the Service's ports on nodes.
	nodePorts []*corev1.Service
	pods      []*corev1.Pod
	ingresses []*networkingv1.Ingress
}

// outcome is the result of a decision: the addresses of the Service, or why it has none.
type outcome struct {
	status  corev1.LoadBalancerStatus
	pending string
	// skipped is the reason why some nodes are left out.
	skipped string
	// displaced are the Ingresses that lose their ports to the Service.
	displaced []*networkingv1.Ingress
}

func (s *world) decide() (out outcome) {
	if out.pending = s.unavailablePort(); out.pending != "" {
		return out
	}
	svc := s.service
	wanted, wants := netip.Addr{}, svc.Spec.LoadBalancerIP != ""
	if wants {
		var err error
		if wanted, err = netip.ParseAddr(svc.Spec.LoadBalancerIP); err != nil {
			return outcome{pending: fmt.Sprintf("%q in spec.loadBalancerIP is not an address", svc.Spec.LoadBalancerIP)}
		}
	}
	var reasons []string
	count := 0
	owners := nodeaddress.Owners(s.claimants, s.ranges)
	for _, n := range s.servingNodes() {
		addrs := s.addresses(n, owners)
		if wants {
			addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return a != wanted.Unmap() })
		}
		if len(addrs) == 0 {
			continue
		}
		if who := s.portUser(n, addrs); who != "" {
			reasons = append(reasons, who)
			continue
		}
		if count++; count > maxNodes {
			break
		}
		for _, a := range addrs {
			out.status.Ingress = append(out.status.Ingress, ingress(svc, a))
			out.displaced = append(out.displaced, s.displaced(a)...)
		}
	}
	text := strings.Join(reasons[:min(3, len(reasons))], "; ")
	switch {
	case len(out.status.Ingress) > 0:
		out.skipped = text
	case len(reasons) > 0:
		out.pending = text
	case wants:
		out.pending = fmt.Sprintf("no node that is ready for it has the address %s, which spec.loadBalancerIP asks for", wanted)
	}
	slices.SortFunc(out.displaced, func(a, b *networkingv1.Ingress) int { return strings.Compare(string(a.UID), string(b.UID)) })
	out.displaced = slices.Compact(out.displaced)
	return out
}

func ingress(svc *corev1.Service, a netip.Addr) corev1.LoadBalancerIngress {
	out := corev1.LoadBalancerIngress{IP: a.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)}
	for _, p := range svc.Spec.Ports {
		out.Ports = append(out.Ports, corev1.PortStatus{Port: p.Port, Protocol: protocol(p.Protocol)})
	}
	return out
}

// unavailablePort returns why the Service cannot have one of its ports on any node; empty if it can have all. Services get their
// ports in the order of age, and one that cannot have all of its ports gets none.
func (s *world) unavailablePort() string {
	has := map[claim]*corev1.Service{}
	for _, o := range slices.SortedFunc(slices.Values(s.others), compareAge) {
		if o.UID == s.service.UID {
			break
		}
		if s.missingPort(o, has) != "" {
			continue
		}
		for _, c := range claims(o) {
			has[c] = o
		}
	}
	return s.missingPort(s.service, has)
}

// missingPort returns why a Service cannot have one of its ports when older Services have theirs; empty if it can have all.
func (s *world) missingPort(svc *corev1.Service, has map[claim]*corev1.Service) string {
	if why := s.forbiddenPort(svc); why != "" {
		return why
	}
	for _, c := range claims(svc) {
		if first := has[c]; first != nil {
			return fmt.Sprintf("port %s is used by the load balancer of Service %s/%s, which is older", c.port, first.Namespace, first.Name)
		}
	}
	return ""
}

// compareAge orders Services by age, and those of the same age by namespace and name.
func compareAge(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name))
}

// claim is a port on all nodes in one IP family.
type claim struct {
	family corev1.IPFamily
	port   string
}

func claims(svc *corev1.Service) (out []claim) {
	for _, f := range families(svc) {
		for _, p := range svc.Spec.Ports {
			out = append(out, claim{f, portKey(p.Protocol, p.Port)})
		}
	}
	return out
}

// forbiddenPort returns why a Service can never have one of its ports: it is reserved, or a node port of another Service.
func (s *world) forbiddenPort(svc *corev1.Service) string {
	for _, p := range svc.Spec.Ports {
		for _, k := range s.reserved {
			if k.Number == p.Port && k.Protocol == protocol(p.Protocol) {
				return fmt.Sprintf("port %s of the nodes belongs to %s", portKey(p.Protocol, p.Port), k.Owner)
			}
		}
		for _, o := range s.nodePorts {
			if o.UID == svc.UID {
				continue
			}
			if slices.Contains(nodePorts(o), portKey(p.Protocol, p.Port)) {
				return fmt.Sprintf("port %s is a node port of Service %s/%s", portKey(p.Protocol, p.Port), o.Namespace, o.Name)
			}
		}
	}
	return ""
}

// servingNodes returns the nodes that can serve the Service: those that are ready and, if its external traffic stays on the node,
// have endpoints of it.
func (s *world) servingNodes() (out []*corev1.Node) {
	on := func(string) bool { return true }
	if s.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		on = s.nodesWithEndpoints()
	}
	for _, n := range s.nodes {
		if isReady(n) && on(n.Name) {
			out = append(out, n)
		}
	}
	return out
}

// nodesWithEndpoints returns a predicate for the nodes that have ready endpoints or, if no node has any, endpoints that are
// terminating but still serve.
func (s *world) nodesWithEndpoints() func(node string) bool {
	is := func(b *bool, other bool) bool {
		if b == nil {
			return other
		}
		return *b
	}
	readyNodes, terminatingNodes := map[string]bool{}, map[string]bool{}
	for _, slice := range s.slices {
		for _, e := range slice.Endpoints {
			switch {
			case e.NodeName == nil:
			case is(e.Conditions.Ready, true):
				readyNodes[*e.NodeName] = true
			case is(e.Conditions.Serving, true) && is(e.Conditions.Terminating, false):
				terminatingNodes[*e.NodeName] = true
			}
		}
	}
	if len(readyNodes) == 0 {
		readyNodes = terminatingNodes
	}
	return func(node string) bool { return readyNodes[node] }
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// families returns the IP families of a Service.
func families(svc *corev1.Service) []corev1.IPFamily {
	if len(svc.Spec.IPFamilies) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return svc.Spec.IPFamilies
}

// addresses returns one address of a node for each IP family of the Service: the first external one, or else the first
// internal one. An address that an older node has too belongs to the older one.
func (s *world) addresses(n *corev1.Node, owners map[netip.Addr]string) (out []netip.Addr) {
	for _, f := range families(s.service) {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
			list := nodeaddress.Of(n, kind, s.ranges)
			i := slices.IndexFunc(list, func(ip netip.Addr) bool { return owners[ip] == n.Name && ip.Is6() == (f == corev1.IPv6Protocol) })
			if i >= 0 {
				out = append(out, list[i])
				break
			}
		}
	}
	return out
}

// portUser returns which Pod or older Ingress uses a port of the Service on a node; empty if all are free. A host port stays
// with its Pod, however old that is: the scheduler has reserved it, and rules in the kernel exist for it.
func (s *world) portUser(n *corev1.Node, addrs []netip.Addr) string {
	for _, sp := range s.service.Spec.Ports {
		key := portKey(sp.Protocol, sp.Port)
		for _, p := range s.pods {
			if p.Spec.NodeName == n.Name && !workload.IsTerminal(p) &&
				slices.ContainsFunc(hostPorts(p), func(h hostPort) bool { return h.key == key && h.isAt(addrs) }) {
				return fmt.Sprintf("port %s of node %s is used by Pod %s/%s", key, n.Name, p.Namespace, p.Name)
			}
		}
		for _, i := range s.ingresses {
			if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return isServedAt(i, a, sp) }) &&
				!i.CreationTimestamp.After(s.service.CreationTimestamp.Time) {
				return fmt.Sprintf("port %s of node %s is used by Ingress %s/%s", key, n.Name, i.Namespace, i.Name)
			}
		}
	}
	return ""
}

// displaced returns the Ingresses that are served at the same port of an address. They are younger than the Service:
// portUser has found the older ones.
func (s *world) displaced(a netip.Addr) (out []*networkingv1.Ingress) {
	for _, i := range s.ingresses {
		if slices.ContainsFunc(s.service.Spec.Ports, func(sp corev1.ServicePort) bool { return isServedAt(i, a, sp) }) {
			out = append(out, i)
		}
	}
	return out
}

// isServedAt reports whether an Ingress is served at a port of an address.
func isServedAt(i *networkingv1.Ingress, a netip.Addr, sp corev1.ServicePort) bool {
	if protocol(sp.Protocol) != corev1.ProtocolTCP {
		return false
	}
	for _, in := range i.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(in.IP); err != nil || ip.Unmap() != a {
			continue
		}
		if len(in.Ports) == 0 && (sp.Port == 80 || sp.Port == 443) {
			return true
		}
		for _, p := range in.Ports {
			if p.Port == sp.Port {
				return true
			}
		}
	}
	return false
}

func protocol(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

func portKey(p corev1.Protocol, number int32) string {
	return fmt.Sprintf("%d/%s", number, protocol(p))
}

// hostPort is a port that a Pod has on its node.
type hostPort struct {
	key string
	ip  netip.Addr // all addresses of the node if not valid
}

func (h hostPort) isAt(addrs []netip.Addr) bool {
	return !h.ip.IsValid() || h.ip.IsUnspecified() || slices.Contains(addrs, h.ip)
}

func hostPorts(p *corev1.Pod) (out []hostPort) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ip, _ := netip.ParseAddr(port.HostIP)
				out = append(out, hostPort{portKey(port.Protocol, port.HostPort), ip.Unmap()})
			}
		}
	}
	return out
}

// nodePorts returns the ports that a Service has on every node, including its health check port.
func nodePorts(svc *corev1.Service) (out []string) {
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, portKey(p.Protocol, p.NodePort))
		}
	}
	if svc.Spec.HealthCheckNodePort != 0 {
		out = append(out, portKey(corev1.ProtocolTCP, svc.Spec.HealthCheckNodePort))
	}
	return out
}

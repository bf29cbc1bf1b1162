package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/kinds/nodeaddress"
)

// most is how many nodes a Service gets at most. More addresses help nobody, and each is in every copy of the Service.
const most = 64

// scene is everything that a decision depends on.
type scene struct {
	service *corev1.Service
	// nodes may be behind load balancers; those that are not ready are among them. They are sorted by name.
	nodes []*corev1.Node
	// claimants are all nodes, those that are kept out of load balancers too: their addresses are theirs all the same.
	claimants []*corev1.Node
	slices    []*discoveryv1.EndpointSlice // of the Service
	others    []*corev1.Service            // all that want an address, this one among them
	kept      []Port
	ranges    []netip.Prefix // of Pods and Services, where no node has an address
	// nodePorts, pods and ingresses are who may have one of the Service's ports on nodes.
	nodePorts []*corev1.Service
	pods      []*corev1.Pod
	ingresses []*networkingv1.Ingress
}

// outcome is what comes of it: where the Service is, or why it is nowhere.
type outcome struct {
	status  corev1.LoadBalancerStatus
	pending string
	// skipped says why some nodes are left out.
	skipped string
	// displaced are Ingresses that lose their ports to the Service.
	displaced []*networkingv1.Ingress
}

func (s *scene) decide() (out outcome) {
	if out.pending = s.blocked(); out.pending != "" {
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
	for _, n := range s.behind() {
		addrs := s.addresses(n, owners)
		if wants {
			addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return a != wanted.Unmap() })
		}
		if len(addrs) == 0 {
			continue
		}
		if who := s.taken(n, addrs); who != "" {
			reasons = append(reasons, who)
			continue
		}
		if count++; count > most {
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

// blocked says who has a port of the Service on all nodes. Ports are given out in the order of age, and a Service that does not
// get all of its ports takes none from the others.
func (s *scene) blocked() string {
	has := map[claim]*corev1.Service{}
	for _, o := range slices.SortedFunc(slices.Values(s.others), older) {
		if o.UID == s.service.UID {
			break
		}
		if s.lacks(o, has) != "" {
			continue
		}
		for _, c := range claims(o) {
			has[c] = o
		}
	}
	return s.lacks(s.service, has)
}

// lacks says which port a Service does not get when others have theirs.
func (s *scene) lacks(svc *corev1.Service, has map[claim]*corev1.Service) string {
	if why := s.refused(svc); why != "" {
		return why
	}
	for _, c := range claims(svc) {
		if first := has[c]; first != nil {
			return fmt.Sprintf("port %s is used by the load balancer of Service %s/%s, which is older", c.port, first.Namespace, first.Name)
		}
	}
	return ""
}

// older orders Services by age, and those of the same second by name.
func older(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// claim is a port on every node, in one family.
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

// refused says which port a Service can never have: the system's, or one that is somebody's node port.
func (s *scene) refused(svc *corev1.Service) string {
	for _, p := range svc.Spec.Ports {
		for _, k := range s.kept {
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

// behind are the nodes that can serve the Service: they are ready, and have endpoints of it if traffic stays on the node.
func (s *scene) behind() (out []*corev1.Node) {
	on := func(string) bool { return true }
	if s.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		on = s.endpoints()
	}
	for _, n := range s.nodes {
		if ready(n) && on(n.Name) {
			out = append(out, n)
		}
	}
	return out
}

// endpoints says which nodes have endpoints that are ready; if there are none, those that still serve while they end.
func (s *scene) endpoints() func(node string) bool {
	is := func(b *bool, other bool) bool {
		if b == nil {
			return other
		}
		return *b
	}
	good, last := map[string]bool{}, map[string]bool{}
	for _, slice := range s.slices {
		for _, e := range slice.Endpoints {
			switch {
			case e.NodeName == nil:
			case is(e.Conditions.Ready, true):
				good[*e.NodeName] = true
			case is(e.Conditions.Serving, true) && is(e.Conditions.Terminating, false):
				last[*e.NodeName] = true
			}
		}
	}
	if len(good) == 0 {
		good = last
	}
	return func(node string) bool { return good[node] }
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// families are those in which a Service has addresses.
func families(svc *corev1.Service) []corev1.IPFamily {
	if len(svc.Spec.IPFamilies) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return svc.Spec.IPFamilies
}

// addresses are those of a node in each family of the Service: the first external one, or else the first internal one. An address
// that an older node has is not this one's, whatever it says.
func (s *scene) addresses(n *corev1.Node, owners map[netip.Addr]string) (out []netip.Addr) {
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

// taken says who has a port of the Service on one node. What a Pod has was given to it by name, and is in the kernel; so it
// stays the Pod's. An Ingress must be older.
func (s *scene) taken(n *corev1.Node, addrs []netip.Addr) string {
	for _, sp := range s.service.Spec.Ports {
		key := portKey(sp.Protocol, sp.Port)
		for _, p := range s.pods {
			if p.Spec.NodeName == n.Name && !finished(p) && slices.ContainsFunc(hostPorts(p), func(h hostPort) bool { return h.key == key && h.at(addrs) }) {
				return fmt.Sprintf("port %s of node %s is used by Pod %s/%s", key, n.Name, p.Namespace, p.Name)
			}
		}
		for _, i := range s.ingresses {
			if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return uses(i, a, sp) }) && !i.CreationTimestamp.After(s.service.CreationTimestamp.Time) {
				return fmt.Sprintf("port %s of node %s is used by Ingress %s/%s", key, n.Name, i.Namespace, i.Name)
			}
		}
	}
	return ""
}

// displaced are the Ingresses that are younger than the Service and want the same port.
func (s *scene) displaced(a netip.Addr) (out []*networkingv1.Ingress) {
	for _, i := range s.ingresses {
		if slices.ContainsFunc(s.service.Spec.Ports, func(sp corev1.ServicePort) bool { return uses(i, a, sp) }) {
			out = append(out, i)
		}
	}
	return out
}

// uses says that an Ingress is served at a port of an address.
func uses(i *networkingv1.Ingress, a netip.Addr, sp corev1.ServicePort) bool {
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

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func protocol(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

func portKey(p corev1.Protocol, number int32) string {
	return fmt.Sprintf("%d/%s", number, protocol(p))
}

// hostPort is a port that a Pod has on its node.
type hostPort struct {
	key string
	ip  netip.Addr // every one if not valid
}

func (h hostPort) at(addrs []netip.Addr) bool {
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

// nodePorts are the ports that a Service has on every node.
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

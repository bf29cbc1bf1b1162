package networkpolicy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// cluster holds objects of the API, from which the oracle decides.
type cluster struct {
	namespaces map[string]map[string]string
	pods       map[key]*corev1.Pod
	policies   map[key]*networkingv1.NetworkPolicy
}

func newCluster() *cluster {
	return &cluster{map[string]map[string]string{}, map[key]*corev1.Pod{}, map[key]*networkingv1.NetworkPolicy{}}
}

// flow is the first packet of a connection.
type flow struct {
	from, to netip.Addr
	protocol corev1.Protocol
	port     int
}

func (f flow) String() string {
	return fmt.Sprintf("%s to %s at %s %d", f.from, f.to, f.protocol, f.port)
}

// podAt returns the Pod that has an address.
func (c *cluster) podAt(a netip.Addr) *corev1.Pod {
	for _, p := range c.pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		for _, ip := range p.Status.PodIPs {
			if !ended && !p.Spec.HostNetwork && ip.IP == a.String() {
				return p
			}
		}
	}
	return nil
}

// allows implements the documentation of the API as directly as possible: without sets and chains, over all objects
// every time.
func (c *cluster) allows(f flow) bool {
	if f.from == f.to {
		return true
	}
	src, dst := c.podAt(f.from), c.podAt(f.to)
	return c.allowsDirection(src, networkingv1.PolicyTypeEgress, f, dst, f.to, dst) &&
		c.allowsDirection(dst, networkingv1.PolicyTypeIngress, f, src, f.from, dst)
}

// allowsDirection tells whether the policies of one Pod allow a connection in one direction.
func (c *cluster) allowsDirection(pod *corev1.Pod, direction networkingv1.PolicyType, f flow, other *corev1.Pod, otherAddr netip.Addr,
	dst *corev1.Pod) bool {
	if pod == nil {
		return true
	}
	isolated := false
	for _, p := range c.policies {
		if p.Namespace != pod.Namespace || !selects(&p.Spec.PodSelector, pod.Labels) {
			continue
		}
		types := p.Spec.PolicyTypes
		if len(types) == 0 {
			types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(p.Spec.Egress) > 0 {
				types = append(types, networkingv1.PolicyTypeEgress)
			}
		}
		if !slices.Contains(types, direction) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				if c.matchesPeers(p.Namespace, r.From, other, otherAddr) && portsAllow(r.Ports, f, dst) {
					return true
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if c.matchesPeers(p.Namespace, r.To, other, otherAddr) && portsAllow(r.Ports, f, dst) {
				return true
			}
		}
	}
	return !isolated
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(set))
}

func (c *cluster) matchesPeers(namespace string, list []networkingv1.NetworkPolicyPeer, other *corev1.Pod, addr netip.Addr) bool {
	if len(list) == 0 {
		return true
	}
	for _, p := range list {
		switch {
		case p.IPBlock != nil:
			if inBlock(p.IPBlock, addr) {
				return true
			}
		case other == nil:
		case p.NamespaceSelector == nil:
			if other.Namespace == namespace && selects(p.PodSelector, other.Labels) {
				return true
			}
		default:
			set, known := c.namespaces[other.Namespace]
			all := len(p.NamespaceSelector.MatchLabels)+len(p.NamespaceSelector.MatchExpressions) == 0
			if (all || known && selects(p.NamespaceSelector, set)) && (p.PodSelector == nil || selects(p.PodSelector, other.Labels)) {
				return true
			}
		}
	}
	return false
}

func inBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	in := func(text string) bool {
		_, n, err := net.ParseCIDR(text)
		return err == nil && n.Contains(a.AsSlice())
	}
	return in(b.CIDR) && !slices.ContainsFunc(b.Except, in)
}

func portsAllow(list []networkingv1.NetworkPolicyPort, f flow, dst *corev1.Pod) bool {
	if len(list) == 0 {
		return true
	}
	for _, p := range list {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if protocol != f.protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.StrVal != "":
			if dst != nil && namedPortOf(dst, p.Port.StrVal, protocol) == f.port {
				return true
			}
		case p.EndPort != nil:
			if f.port >= int(p.Port.IntVal) && f.port <= int(*p.EndPort) {
				return true
			}
		case f.port == int(p.Port.IntVal):
			return true
		}
	}
	return false
}

// namedPortOf returns the number of a named port, or -1.
func namedPortOf(p *corev1.Pod, name string, protocol corev1.Protocol) int {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name && (port.Protocol == protocol || port.Protocol == "" && protocol == corev1.ProtocolTCP) {
				return int(port.ContainerPort)
			}
		}
	}
	for _, c := range p.Spec.InitContainers {
		for _, port := range c.Ports {
			if c.RestartPolicy != nil && port.Name == name &&
				(port.Protocol == protocol || port.Protocol == "" && protocol == corev1.ProtocolTCP) {
				return int(port.ContainerPort)
			}
		}
	}
	return -1
}

// passes evaluates the plan of one node for a connection, in both directions. A Pod always reaches itself.
func (w *model) passes(f flow) bool {
	if _, own := w.itself.elements[element{addr: f.from}]; own && f.from == f.to {
		return true
	}
	for d, a := range map[direction]netip.Addr{egress: f.from, ingress: f.to} {
		if name, isolated := w.isolationMaps[d].elements[element{addr: a}]; isolated && w.evaluateChain(name, f) != accept {
			return false
		}
	}
	return true
}

// evaluateChain returns the verdict of a chain for a connection, or nothing if no rule of it matches.
func (w *model) evaluateChain(name string, f flow) verdict {
	protocol := protocolNumber(&f.protocol)
	for _, l := range w.chains[name].lines {
		switch {
		case l.from != "" && !w.sets[l.from].has(f.from),
			l.to != "" && !w.sets[l.to].has(f.to),
			l.protocol != 0 && (l.protocol != protocol || f.port < int(l.first) || f.port > int(l.last)):
			continue
		}
		if l.named != "" {
			if _, in := w.sets[l.named].elements[element{f.to, protocol, uint16(f.port)}]; !in {
				continue
			}
		}
		if l.verdict != jump {
			return l.verdict
		}
		if v := w.evaluateChain(l.chain, f); v != "" {
			return v
		}
	}
	return ""
}

func (s *set) has(a netip.Addr) bool {
	_, in := s.elements[element{addr: a}]
	return in || slices.ContainsFunc(s.spans, func(x span) bool { return x.contains(a) })
}

package networkpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// direction is the direction of a connection, seen from the Pod that a policy selects.
type direction int

const (
	ingress direction = iota
	egress
)

func directions() []direction { return []direction{ingress, egress} }

// key is the namespace and name of a policy or Pod.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

func compareKeys(a, b key) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

// policy is a parsed NetworkPolicy.
type policy struct {
	key
	pods     labels.Selector // selects the Pods of its namespace that it isolates
	isolates [2]bool
	rules    [2][]rule
}

// rule allows connections with any of its peers on any of its ports.
type rule struct {
	anyPeer bool // peers and blocks are empty then
	peers   []peer
	blocks  []span
	anyPort bool // of any protocol; ports is empty then
	ports   []portMatch
}

// peer selects Pods by their labels.
type peer struct {
	namespace  string          // the namespace of the Pods, if namespaces is nil
	namespaces labels.Selector // or the namespaces of the Pods
	pods       labels.Selector
}

// String returns the selectors as a text. Equal texts mean equal peers.
func (p peer) String() string {
	where := p.namespace
	if p.namespaces != nil {
		where = "{" + p.namespaces.String() + "}"
	}
	return where + "/{" + p.pods.String() + "}"
}

// portMatch matches ports of one protocol: a range of numbers, or the port of a Pod with a name.
type portMatch struct {
	protocol    uint8
	first, last uint16 // 0 to 65535 for any port
	name        string
}

func (p portMatch) String() string {
	protocol := map[uint8]string{tcp: "tcp", udp: "udp", sctp: "sctp"}[p.protocol]
	switch {
	case p.name != "":
		return protocol + ":" + p.name
	case p.first == 0:
		return protocol
	case p.first == p.last:
		return fmt.Sprint(protocol, ":", p.first)
	}
	return fmt.Sprint(protocol, ":", p.first, "-", p.last)
}

// The numbers of IP protocols.
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

func protocolNumber(p *corev1.Protocol) uint8 {
	if p == nil {
		return tcp
	}
	switch *p {
	case corev1.ProtocolUDP:
		return udp
	case corev1.ProtocolSCTP:
		return sctp
	}
	return tcp
}

// readPolicy parses a NetworkPolicy. Invalid parts, which validation should have refused, isolate Pods and allow nothing.
func readPolicy(n *networkingv1.NetworkPolicy) *policy {
	p := &policy{key: key{n.Namespace, n.Name}, pods: selector(&n.Spec.PodSelector, labels.Everything())}
	for _, t := range n.Spec.PolicyTypes {
		p.isolates[ingress] = p.isolates[ingress] || t == networkingv1.PolicyTypeIngress
		p.isolates[egress] = p.isolates[egress] || t == networkingv1.PolicyTypeEgress
	}
	if len(n.Spec.PolicyTypes) == 0 {
		p.isolates = [2]bool{ingress: true, egress: len(n.Spec.Egress) > 0}
	}
	for _, r := range n.Spec.Ingress {
		p.rules[ingress] = append(p.rules[ingress], readRule(n.Namespace, r.From, r.Ports))
	}
	for _, r := range n.Spec.Egress {
		p.rules[egress] = append(p.rules[egress], readRule(n.Namespace, r.To, r.Ports))
	}
	return p
}

func readRule(namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) rule {
	r := rule{anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	var blocks []span
	for _, p := range peers {
		if p.IPBlock != nil {
			blocks = append(blocks, readBlock(p.IPBlock)...)
			continue
		}
		out := peer{namespace: namespace, pods: labels.Everything()}
		if p.PodSelector != nil || p.NamespaceSelector == nil {
			out.pods = selector(p.PodSelector, labels.Nothing()) // an empty peer selects nothing
		}
		if p.NamespaceSelector != nil {
			out.namespace, out.namespaces = "", selector(p.NamespaceSelector, labels.Nothing())
		}
		r.peers = append(r.peers, out)
	}
	r.blocks = merge(blocks)
	for _, p := range ports {
		r.ports = append(r.ports, readPort(p))
	}
	slices.SortFunc(r.ports, func(a, b portMatch) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last),
			cmp.Compare(a.name, b.name))
	})
	r.ports = slices.Compact(r.ports)
	return r
}

func readPort(p networkingv1.NetworkPolicyPort) portMatch {
	out := portMatch{protocol: protocolNumber(p.Protocol)}
	switch {
	case p.Port == nil:
		out.last = 65535
	case p.Port.Type == intstr.String:
		out.name = p.Port.StrVal
	default:
		out.first = uint16(p.Port.IntVal)
		out.last = out.first
		if p.EndPort != nil && *p.EndPort > p.Port.IntVal && *p.EndPort <= 65535 {
			out.last = uint16(*p.EndPort)
		}
	}
	return out
}

func selector(s *metav1.LabelSelector, fallback labels.Selector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return fallback
	}
	return out
}

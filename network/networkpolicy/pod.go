package networkpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/utils/net"
)

// podFacts is the part of a Pod that policies depend on.
type podFacts struct {
	key
	uid string
	// known is false for a Pod that was just attached and that the view does not show yet: only its name is known.
	known  bool
	labels labels.Set
	addrs  []netip.Addr
	// local means that the Pod is on this node, where policies are enforced for it; attached that its addresses come from the Pod network
	// of this node rather than from the status of the Pod.
	local, attached bool
	created         time.Time
	ports           []namedPort
}

// namedPort is a container port with a name.
type namedPort struct {
	name     string
	protocol uint8
	number   uint16
}

// readPod returns the facts of a Pod. It returns false for Pods that policies do not apply to: those with hostNetwork, and those that have
// terminated, whose addresses may belong to other Pods by now.
func readPod(p *corev1.Pod, node string) (podFacts, bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return podFacts{}, false
	}
	out := podFacts{
		key: key{p.Namespace, p.Name}, uid: string(p.UID), known: true, labels: p.Labels, local: p.Spec.NodeName == node && node != "",
		created: p.CreationTimestamp.Time, addrs: addresses(&p.Status), ports: namedPorts(p),
	}
	return out, true
}

func addresses(s *corev1.PodStatus) (out []netip.Addr) {
	for _, ip := range s.PodIPs {
		if a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(ip.IP)); ok {
			out = append(out, a.Unmap())
		}
	}
	if a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(s.PodIP)); ok && len(out) == 0 {
		out = append(out, a.Unmap())
	}
	return out
}

// namedPorts returns the ports of a Pod that have names, those of its containers and of its sidecars. Of two with the
// same name and protocol the first counts.
func namedPorts(p *corev1.Pod) (out []namedPort) {
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			n := namedPort{port.Name, protocolNumber(&port.Protocol), uint16(port.ContainerPort)}
			if port.Name != "" && !slices.ContainsFunc(out,
				func(o namedPort) bool { return o.name == n.name && o.protocol == n.protocol }) {
				out = append(out, n)
			}
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

// isSamePod reports whether the Pod of the API is the one that the Pod network attached. The mirror Pod of a static Pod
// has another UID in the API, and names that of the node in an annotation.
func isSamePod(p *corev1.Pod, uid string) bool {
	return uid == "" || string(p.UID) == uid || p.Annotations[corev1.MirrorPodAnnotationKey] == uid
}

// isUnchanged reports whether two versions of a Pod have the same facts. The ports of a Pod cannot change.
func isUnchanged(a, b *corev1.Pod) bool {
	isTerminated := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && isTerminated(a) == isTerminated(b) && a.Status.PodIP == b.Status.PodIP &&
		slices.Equal(a.Status.PodIPs, b.Status.PodIPs) && maps.Equal(a.Labels, b.Labels)
}

// yieldsTo reports whether an address that two Pods claim belongs to the other one. An attachment of the Pod network
// takes precedence, then the younger Pod, because an address is assigned again only after its owner has released it.
func (p *podFacts) yieldsTo(o *podFacts) bool {
	rank := func(x *podFacts) int {
		if x.attached {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(p), rank(o)), p.created.Compare(o.created), strings.Compare(p.uid, o.uid), compareKeys(p.key, o.key)) < 0
}

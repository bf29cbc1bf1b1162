package policy

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

// podFacts is what counts of a Pod.
type podFacts struct {
	key
	uid string
	// known says that the API has told us about it. Of a Pod that was just connected we may know no more than its name.
	known  bool
	labels labels.Set
	addrs  []netip.Addr
	// local says that it is on this node, where policies are enforced for it; attached that the node's network says whose
	// address this is, and nobody knows better.
	local, attached bool
	born            time.Time
	ports           []namedPort
}

// namedPort is a port that a container has a name for.
type namedPort struct {
	name     string
	protocol uint8
	number   uint16
}

// readPod takes from a Pod what counts. It is false for Pods that do not: those that use the network of their node, and those
// that have ended, whose addresses may be others' by now.
func readPod(p *corev1.Pod, node string) (podFacts, bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return podFacts{}, false
	}
	out := podFacts{
		key: key{p.Namespace, p.Name}, uid: string(p.UID), known: true, labels: p.Labels, local: p.Spec.NodeName == node && node != "",
		born: p.CreationTimestamp.Time, addrs: addresses(&p.Status), ports: namedPorts(p),
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

// namedPorts are the ports of a Pod that have names: of its containers, and of those that start before them and stay. Where
// two have the same name the first counts.
func namedPorts(p *corev1.Pod) (out []namedPort) {
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			n := namedPort{port.Name, protocolNumber(&port.Protocol), uint16(port.ContainerPort)}
			if port.Name != "" && !slices.ContainsFunc(out, func(o namedPort) bool { return o.name == n.name && o.protocol == n.protocol }) {
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

// is tells whether the Pod of the API is the one that the node's network was told about. A static Pod has another identity on
// its node than in the API, where it says so.
func is(p *corev1.Pod, uid string) bool {
	return uid == "" || string(p.UID) == uid || p.Annotations[corev1.MirrorPodAnnotationKey] == uid
}

// same tells whether nothing has changed that counts. The ports of a Pod cannot change.
func same(a, b *corev1.Pod) bool {
	over := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && over(a) == over(b) && a.Status.PodIP == b.Status.PodIP &&
		slices.Equal(a.Status.PodIPs, b.Status.PodIPs) && maps.Equal(a.Labels, b.Labels)
}

// before tells whether an address that two Pods have is the other's: what the node's network says counts, and then who came
// last, for an address is given to somebody else only when its owner is gone.
func (p *podFacts) before(o *podFacts) bool {
	rank := func(x *podFacts) int {
		if x.attached {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(p), rank(o)), p.born.Compare(o.born), strings.Compare(p.uid, o.uid), compareKeys(p.key, o.key)) < 0
}

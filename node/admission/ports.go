package admission

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/podstate"
)

// port is a host port of a Pod.
type port struct {
	protocol corev1.Protocol
	ip       string
	number   int32
}

// anyAddress is the address that stands for all addresses.
const anyAddress = "0.0.0.0"

func ports(p *corev1.Pod) (out []port) {
	add := func(c *corev1.Container) {
		for _, x := range c.Ports {
			if x.HostPort <= 0 {
				continue
			}
			n := port{x.Protocol, x.HostIP, x.HostPort}
			if n.protocol == "" {
				n.protocol = corev1.ProtocolTCP
			}
			if n.ip == "" {
				n.ip = anyAddress
			}
			out = append(out, n)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podstate.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}

// portConflict reports whether a Pod wants a host port that another one has.
func portConflict(p *corev1.Pod, others []*corev1.Pod) bool {
	mine := ports(p)
	if len(mine) == 0 {
		return false
	}
	for _, o := range others {
		for _, b := range ports(o) {
			for _, a := range mine {
				if a.protocol == b.protocol && a.number == b.number && (a.ip == b.ip || a.ip == anyAddress || b.ip == anyAddress) {
					return true
				}
			}
		}
	}
	return false
}

package admit

import (
	corev1 "k8s.io/api/core/v1"
)

// port is one that a Pod opens on the node.
type port struct {
	protocol corev1.Protocol
	ip       string
	number   int32
}

// anywhere is the address that stands for all.
const anywhere = "0.0.0.0"

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
				n.ip = anywhere
			}
			out = append(out, n)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}

// clash says that a Pod wants a port that another one has.
func clash(p *corev1.Pod, others []*corev1.Pod) bool {
	mine := ports(p)
	if len(mine) == 0 {
		return false
	}
	for _, o := range others {
		for _, b := range ports(o) {
			for _, a := range mine {
				if a.protocol == b.protocol && a.number == b.number && (a.ip == b.ip || a.ip == anywhere || b.ip == anywhere) {
					return true
				}
			}
		}
	}
	return false
}

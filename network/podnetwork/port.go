package podnetwork

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
)

// hostPort is a port of the node that is forwarded to a container.
type hostPort struct {
	Protocol      string     `json:"protocol"`        // tcp or udp
	HostIP        netip.Addr `json:"hostIP,omitzero"` // all addresses of the node if unset
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
}

// number returns the number of the IP protocol.
func (h hostPort) number() uint8 {
	if h.Protocol == "udp" {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
}

// serves reports whether the port is forwarded to an address of this family. The unspecified address stands for all
// addresses of its family.
func (h hostPort) serves(a netip.Addr) bool {
	return !h.HostIP.IsValid() || h.HostIP.Is4() == a.Is4()
}

// isAnywhere reports whether the port is open on every address of the node.
func (h hostPort) isAnywhere() bool { return !h.HostIP.IsValid() || h.HostIP.IsUnspecified() }

// overlaps reports whether two host ports conflict.
func (h hostPort) overlaps(o hostPort) bool {
	if h.Protocol != o.Protocol || h.HostPort != o.HostPort {
		return false
	}
	if h.HostIP.IsValid() && o.HostIP.IsValid() && h.HostIP.Is4() != o.HostIP.Is4() {
		return false
	}
	return h.isAnywhere() == o.isAnywhere() && (h.isAnywhere() || h.HostIP == o.HostIP)
}

// parsePorts reads the port mappings of a runtime. Entries without a host port are ignored.
func parsePorts(in []cni.PortMapping) (out []hostPort, err error) {
	for _, m := range in {
		if m.HostPort == 0 {
			continue
		}
		p := hostPort{Protocol: strings.ToLower(m.Protocol), HostPort: uint16(m.HostPort), ContainerPort: uint16(m.ContainerPort)}
		switch p.Protocol {
		case "":
			p.Protocol = "tcp"
		case "tcp", "udp":
		case "sctp":
			return nil, cni.Errorf(cni.UnsupportedField, "host port %d: SCTP is not supported; use TCP or UDP", m.HostPort)
		default:
			return nil, cni.Errorf(cni.InvalidConfig, "host port %d: protocol %q is not TCP or UDP", m.HostPort, m.Protocol)
		}
		if m.HostPort < 0 || m.HostPort > 65535 || m.ContainerPort < 1 || m.ContainerPort > 65535 {
			return nil, cni.Errorf(cni.InvalidConfig, "host port %d to container port %d: ports are numbers from 1 to 65535", m.HostPort,
				m.ContainerPort)
		}
		if m.HostIP != "" {
			if p.HostIP, err = netip.ParseAddr(m.HostIP); err != nil {
				return nil, cni.Errorf(cni.InvalidConfig, "host port %d: hostIP %q is not an IP address", m.HostPort, m.HostIP)
			}
			p.HostIP = p.HostIP.Unmap().WithZone("")
		}
		out = append(out, p)
	}
	return out, nil
}

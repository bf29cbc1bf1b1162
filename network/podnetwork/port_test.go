package podnetwork

import (
	"testing"

	"proa.dev/network/cni"
)

// FuzzPorts checks that invalid host ports are refused and never truncated.
func FuzzPorts(f *testing.F) {
	f.Add(8080, 80, "TCP", "127.0.0.1")
	f.Add(65536+22, 80, "udp", "::")
	f.Add(-1, 0, "sctp", "fe80::1%eth0")
	f.Fuzz(func(t *testing.T, host, container int, protocol, ip string) {
		got, err := parsePorts([]cni.PortMapping{{HostPort: host, ContainerPort: container, Protocol: protocol, HostIP: ip}})
		if err != nil || host == 0 {
			return
		}
		if len(got) != 1 || int(got[0].HostPort) != host || int(got[0].ContainerPort) != container {
			t.Fatalf("%d to %d is read as %+v", host, container, got)
		}
		if !got[0].overlaps(got[0]) || ip != "" && !got[0].HostIP.IsValid() {
			t.Errorf("%+v", got[0])
		}
	})
}

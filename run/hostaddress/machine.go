package hostaddress

import (
	"net"
	"net/netip"
)

// OfMachine returns the addresses of the interfaces of this machine.
func OfMachine() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // only the source address of a request identifies the machine then
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}

package networkpolicy

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// FuzzBlock checks that a block contains an address if and only if its network contains it and none of its exceptions does.
func FuzzBlock(f *testing.F) {
	f.Add("10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3")
	f.Add("::/0", "fd00::/8", "::ffff:0:0/96", "fd00::1")
	f.Add("0.0.0.0/0", "255.255.255.255/32", "0.0.0.0/32", "255.255.255.254")
	f.Fuzz(func(t *testing.T, cidr, except, also, address string) {
		a, err := netip.ParseAddr(address)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return
		}
		var nets []netip.Prefix
		for _, text := range []string{cidr, except, also} {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Addr().Is4In6() {
				// an invalid block must not crash the agent
				readBlock(&networkingv1.IPBlock{CIDR: cidr, Except: []string{except, also}})
				return
			}
			nets = append(nets, p)
		}
		want := nets[0].Contains(a) && !nets[1].Contains(a) && !nets[2].Contains(a)
		got := false
		spans := merge(readBlock(&networkingv1.IPBlock{CIDR: cidr, Except: []string{except, also}}))
		for i, s := range spans {
			got = got || s.contains(a)
			if s.last.Less(s.first) || i > 0 && !spans[i-1].last.Less(s.first) {
				t.Errorf("spans out of order: %v", spans)
			}
		}
		if got != want {
			t.Errorf("%s without %s and %s, and %s: %t, want %t (%v)", cidr, except, also, a, got, want, spans)
		}
	})
}

package pki

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// hostSet has the names and addresses for which a serving certificate is valid: sorted, without duplicates.
type hostSet struct {
	names []string
	ips   []netip.Addr
}

// sortHosts separates names from addresses.
func sortHosts(hosts []string) hostSet {
	var s hostSet
	for _, h := range hosts {
		h = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(h), "."))
		if ip, err := netip.ParseAddr(strings.Trim(h, "[]")); err == nil {
			s.ips = append(s.ips, ip.Unmap().WithZone(""))
		} else if h != "" && isASCII(h) {
			s.names = append(s.names, h)
		}
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	slices.SortFunc(s.ips, netip.Addr.Compare)
	s.ips = slices.Compact(s.ips)
	return s
}

// servingHosts returns all names and addresses at which the API server is reached.
func servingHosts(o Options) hostSet {
	domain := o.ClusterDomain
	if domain == "" {
		domain = "cluster.local"
	}
	hosts := []string{
		"localhost", "127.0.0.1", "::1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain,
	}
	name := o.Hostname
	if name == "" {
		// A machine without a name is reached by its address; that is not an error.
		name, _ = os.Hostname()
	}
	hosts = append(hosts, name)
	if short, _, ok := strings.Cut(name, "."); ok {
		hosts = append(hosts, short)
	}
	for _, ip := range slices.Concat(o.ListenIPs, o.ServiceIPs) {
		if ip.IsValid() && !ip.IsUnspecified() {
			hosts = append(hosts, ip.String())
		}
	}
	return sortHosts(append(hosts, o.Hosts...))
}

func (s hostSet) netIPs() []net.IP {
	out := make([]net.IP, 0, len(s.ips))
	for _, ip := range s.ips {
		out = append(out, ip.AsSlice())
	}
	return out
}

// match tells whether a certificate with these names and addresses covers exactly the set. A name that was taken away
// from the server must not stay valid for a year.
func (s hostSet) match(names []string, ips []net.IP) bool {
	all := slices.Clone(names)
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	have := sortHosts(all)
	return slices.Equal(s.names, have.names) && slices.Equal(s.ips, have.ips)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/utils/net"
)

// service answers queries about one Service.
type service struct {
	*zone
	*corev1.Service
}

func (s service) name() string { return s.Name + "." + s.Namespace + ".svc." + s.origin }

func (s service) headless() bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

func (s service) alias() bool { return s.Spec.Type == corev1.ServiceTypeExternalName }

// itself answers for the name of the Service: its cluster IPs, the addresses of its endpoints if it is headless, or its
// external name.
func (s service) itself(q dns.Question) (reply, bool) {
	if s.alias() {
		target := dns.Fqdn(s.Spec.ExternalName)
		if _, ok := dns.IsDomainName(target); !ok {
			return reply{}, true
		}
		return reply{answer: []dns.RR{&dns.CNAME{Hdr: s.header(q.Name, dns.TypeCNAME), Target: target}}}, true
	}
	if q.Qtype == dns.TypeSRV {
		return s.ports(q, func(string, corev1.Protocol) bool { return true }), true
	}
	if s.headless() {
		ips := s.ready()
		return reply{answer: s.addresses(q.Name, q.Qtype, ips)}, len(ips) > 0
	}
	return reply{answer: s.addresses(q.Name, q.Qtype, s.clusterIPs())}, true
}

func (s service) clusterIPs() (out []netip.Addr) {
	for _, text := range s.Spec.ClusterIPs {
		if ip, ok := parseAddr(text); ok {
			out = append(out, ip)
		}
	}
	return out
}

// eachReady calls f for all ready endpoints.
func (s service) eachReady(f func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint, netip.Addr)) {
	for o := range s.slices.By(byService(), s.Namespace+"/"+s.Name) {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, text := range e.Addresses {
				if ip, ok := parseAddr(text); ok {
					f(slice, e, ip)
				}
			}
		}
	}
}

func (s service) ready() (out []netip.Addr) {
	s.eachReady(func(_ *discoveryv1.EndpointSlice, _ *discoveryv1.Endpoint, ip netip.Addr) { out = append(out, ip) })
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// endpoint answers for the name of one endpoint: its host name, or its address with dashes.
func (s service) endpoint(name string, q dns.Question) (reply, bool) {
	var ips []netip.Addr
	s.eachReady(func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ip netip.Addr) {
		if hostname(e) == name {
			ips = append(ips, ip)
		}
	})
	slices.SortFunc(ips, netip.Addr.Compare)
	return reply{answer: s.addresses(q.Name, q.Qtype, slices.Compact(ips))}, len(ips) > 0
}

// hostname returns the host name of an endpoint below its Service.
func hostname(e *discoveryv1.Endpoint) string {
	if e.Hostname != nil && *e.Hostname != "" {
		return strings.ToLower(*e.Hostname)
	}
	if len(e.Addresses) == 0 {
		return ""
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(canonical(e.Addresses[0]))
}

// port answers for the SRV name of a port.
func (s service) port(name, protocol string, q dns.Question) (reply, bool) {
	if s.alias() {
		return reply{}, false
	}
	out := s.ports(q, func(n string, p corev1.Protocol) bool {
		return strings.EqualFold(n, name) && strings.EqualFold(string(p), protocol)
	})
	exists := len(out.answer) > 0
	if q.Qtype != dns.TypeSRV {
		out = reply{}
	}
	return out, exists
}

// ports returns the SRV records of the ports that want accepts: at the Service, or at every endpoint if it is headless.
func (s service) ports(q dns.Question, want func(string, corev1.Protocol) bool) (out reply) {
	seen := map[string]bool{}
	add := func(target string, port uint16, ips ...netip.Addr) {
		out.answer = append(out.answer, &dns.SRV{Hdr: s.header(q.Name, dns.TypeSRV), Port: port, Target: target})
		for _, ip := range ips {
			if id := target + ip.String(); !seen[id] {
				seen[id] = true
				out.extra = append(out.extra, s.addresses(target, typeOf(ip), []netip.Addr{ip})...)
			}
		}
	}
	if s.headless() {
		s.eachReady(func(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ip netip.Addr) {
			for _, p := range slice.Ports {
				if p.Port != nil && want(deref(p.Name), cmp.Or(deref(p.Protocol), corev1.ProtocolTCP)) {
					add(hostname(e)+"."+s.name(), uint16(*p.Port), ip)
				}
			}
		})
	} else if !s.alias() {
		for _, p := range s.Spec.Ports {
			if want(p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP)) {
				add(s.name(), uint16(p.Port), s.clusterIPs()...)
			}
		}
	}
	out.answer = distinct(out.answer)
	for _, rr := range out.answer {
		if srv, ok := rr.(*dns.SRV); ok {
			srv.Weight = uint16(max(1, 100/len(out.answer)))
		}
	}
	return out
}

// distinct removes duplicate records: a dual-stack Pod is one target.
func distinct(list []dns.RR) (out []dns.RR) {
	for _, rr := range list {
		if !slices.ContainsFunc(out, func(o dns.RR) bool { return dns.IsDuplicate(o, rr) }) {
			out = append(out, rr)
		}
	}
	return out
}

func typeOf(ip netip.Addr) uint16 {
	if ip.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

func deref[T any](p *T) (zero T) {
	if p != nil {
		return *p
	}
	return zero
}

// parseAddr parses an address as leniently as the API server, which accepts leading zeros.
func parseAddr(s string) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(s))
	return a.Unmap(), ok
}

package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// zone answers queries about the names of the cluster.
type zone struct {
	origin                       string // the cluster domain with a trailing dot
	ttl                          uint32
	self                         []netip.Addr
	services, slices, namespaces client.View
}

// reply is an answer about the cluster.
type reply struct {
	rcode                    int
	answer, extra, authority []dns.RR
}

// version is the version of the DNS specification.
const version = "1.1.0"

// answer answers a query about the cluster. It returns false if the name is neither in the cluster domain nor the
// reverse name of an address in the cluster.
func (z *zone) answer(q dns.Question) (reply, bool) {
	if ip, ok := reverse(q.Name); ok {
		names := z.namesOf(ip)
		if len(names) == 0 {
			return reply{}, false
		}
		var out reply
		if q.Qtype == dns.TypePTR {
			for _, n := range names {
				out.answer = append(out.answer, &dns.PTR{Hdr: z.header(q.Name, dns.TypePTR), Ptr: n})
			}
		}
		return out, true
	}
	name := dns.CanonicalName(q.Name)
	if !dns.IsSubDomain(z.origin, name) {
		return reply{}, false
	}
	labels := dns.SplitDomainName(strings.TrimSuffix(name, z.origin))
	out, exists := z.below(labels, q)
	if !exists {
		out = reply{rcode: dns.RcodeNameError}
	}
	if len(out.answer) == 0 {
		out.authority = []dns.RR{z.soa()}
	}
	return out, true
}

// below answers for a name in the cluster domain; it returns false if there is no such name.
func (z *zone) below(labels []string, q dns.Question) (reply, bool) {
	n := len(labels)
	switch {
	case n == 0:
		return z.apex(q), true
	case labels[n-1] == "svc":
		return z.svc(labels[:n-1], q)
	case labels[n-1] == "pod":
		return z.pod(labels[:n-1], q)
	case n == 1 && labels[0] == "dns-version":
		var out reply
		if q.Qtype == dns.TypeTXT {
			out.answer = []dns.RR{&dns.TXT{Hdr: z.header(q.Name, dns.TypeTXT), Txt: []string{version}}}
		}
		return out, true
	case n == 2 && labels[0] == "ns" && labels[1] == "dns":
		return reply{answer: z.addresses(q.Name, q.Qtype, z.self)}, true
	case n == 1 && labels[0] == "dns":
		return reply{}, true
	}
	return reply{}, false
}

func (z *zone) apex(q dns.Question) (out reply) {
	switch q.Qtype {
	case dns.TypeSOA:
		out.answer = []dns.RR{z.soa()}
	case dns.TypeNS:
		out.answer = []dns.RR{&dns.NS{Hdr: z.header(q.Name, dns.TypeNS), Ns: "ns.dns." + z.origin}}
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
			out.extra = append(out.extra, z.addresses("ns.dns."+z.origin, t, z.self)...)
		}
	}
	return out
}

// svc answers for names below svc: a namespace, a Service, one of its endpoints, or one of its ports.
func (z *zone) svc(labels []string, q dns.Question) (reply, bool) {
	n := len(labels)
	if n == 0 {
		return reply{}, true
	}
	namespace := labels[n-1]
	if _, ok := z.namespaces.Get("", namespace); !ok {
		return reply{}, false
	}
	if n == 1 {
		return reply{}, true
	}
	o, _ := z.services.Get(namespace, labels[n-2])
	svc, ok := o.(*corev1.Service)
	if !ok {
		return reply{}, false
	}
	s := service{zone: z, Service: svc}
	switch {
	case n == 2:
		return s.itself(q)
	case n == 3 && (labels[0] == "_tcp" || labels[0] == "_udp" || labels[0] == "_sctp"):
		return reply{}, true
	case n == 3:
		return s.endpoint(labels[0], q)
	case n == 4 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_"):
		return s.port(labels[0][1:], labels[1][1:], q)
	}
	return reply{}, false
}

// pod answers for names that spell an address, such as 10-1-2-3.default.pod. The namespace must exist; whether a Pod
// has the address is not checked, as in other implementations.
func (z *zone) pod(labels []string, q dns.Question) (reply, bool) {
	n := len(labels)
	if n == 0 {
		return reply{}, true
	}
	if _, ok := z.namespaces.Get("", labels[n-1]); !ok || n > 2 {
		return reply{}, false
	}
	if n == 1 {
		return reply{}, true
	}
	text := labels[0]
	ip, err := netip.ParseAddr(strings.ReplaceAll(text, "-", "."))
	if err != nil {
		ip, err = netip.ParseAddr(strings.ReplaceAll(text, "-", ":"))
	}
	if err != nil || ip.Zone() != "" {
		return reply{}, false
	}
	return reply{answer: z.addresses(q.Name, q.Qtype, []netip.Addr{ip})}, true
}

// namesOf returns the names of an address: those of Services, or else those of endpoints.
func (z *zone) namesOf(ip netip.Addr) (out []string) {
	for o := range z.services.By(byClusterIP(), ip.String()) {
		out = append(out, o.GetName()+"."+o.GetNamespace()+".svc."+z.origin)
	}
	if len(out) > 0 {
		return out
	}
	for o := range z.slices.By(byAddress(), ip.String()) {
		s, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; slices.ContainsFunc(e.Addresses, func(a string) bool { return canonical(a) == ip.String() }) {
				out = append(out, hostname(e)+"."+s.Labels[discoveryv1.LabelServiceName]+"."+s.Namespace+".svc."+z.origin)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (z *zone) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.ttl}
}

func (z *zone) soa() dns.RR {
	return &dns.SOA{
		Hdr: z.header(z.origin, dns.TypeSOA), Ns: "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: z.ttl,
	}
}

// reverseSOA returns the SOA record of the reverse zone of an address family, for negative answers.
func (z *zone) reverseSOA(ip netip.Addr) dns.RR {
	soa := z.soa()
	soa.Header().Name = "in-addr.arpa."
	if ip.Is6() {
		soa.Header().Name = "ip6.arpa."
	}
	return soa
}

// addresses returns the records of a type for addresses; those of the other family are left out.
func (z *zone) addresses(name string, rrtype uint16, ips []netip.Addr) (out []dns.RR) {
	for _, ip := range ips {
		switch {
		case rrtype == dns.TypeA && ip.Is4():
			out = append(out, &dns.A{Hdr: z.header(name, dns.TypeA), A: ip.AsSlice()})
		case rrtype == dns.TypeAAAA && ip.Is6():
			out = append(out, &dns.AAAA{Hdr: z.header(name, dns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	return out
}

// byClusterIP indexes Services by their cluster IPs.
func byClusterIP() client.Index {
	return client.Index{Name: "clusterIP", Values: func(o kind.Object) (out []string) {
		svc, ok := o.(*corev1.Service)
		if !ok {
			return nil
		}
		for _, ip := range svc.Spec.ClusterIPs {
			if ip != corev1.ClusterIPNone {
				out = append(out, canonical(ip))
			}
		}
		return out
	}}
}

// byAddress indexes EndpointSlices of Services by the addresses of their endpoints.
func byAddress() client.Index {
	return client.Index{Name: "address", Values: func(o kind.Object) (out []string) {
		s, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
			return nil
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				out = append(out, canonical(a))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}}
}

// byService indexes EndpointSlices by their Service.
func byService() client.Index {
	return client.Index{Name: "service", Values: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

func canonical(text string) string {
	if ip, ok := parseAddr(text); ok {
		return ip.String()
	}
	return text
}

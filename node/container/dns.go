package container

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/node/cri"
)

// Resolvers take no more than this.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// DNS says how names are resolved in Pods.
type DNS struct {
	// Servers are the cluster's own; empty for a cluster without.
	Servers []netip.Addr
	// Domain is that of the cluster, such as cluster.local.
	Domain string
	// ResolvConf is the node's own configuration; "" gives Pods that use it no name servers but the machine's own.
	ResolvConf string
}

// dns is what a Pod's resolv.conf says.
func (m *Maker) dns(p *corev1.Pod) (*cri.DNSConfig, error) {
	node, err := readResolvConf(m.DNS.ResolvConf)
	if err != nil {
		return nil, err
	}
	c, notes := m.DNS.of(p, node, m.nodeIPs())
	for _, n := range notes {
		m.tell(p, n.reason, n.text)
	}
	return c, nil
}

func (m *Maker) nodeIPs() []netip.Addr {
	if m.NodeIPs == nil {
		return nil
	}
	return m.NodeIPs()
}

// tell warns those who look at a Pod.
func (m *Maker) tell(p *corev1.Pod, reason, text string) {
	if m.Events != nil {
		m.Events.Event(p, "", corev1.EventTypeWarning, reason, "%s", text)
	}
}

// note is something that people shall know.
type note struct{ reason, text string }

// of works out what a Pod's resolv.conf says from its policy, its own wishes and the node's configuration.
func (d DNS) of(p *corev1.Pod, node resolv, ips []netip.Addr) (*cri.DNSConfig, []note) {
	var c resolv
	var notes []note
	policy := p.Spec.DNSPolicy
	cluster := policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !p.Spec.HostNetwork
	if !cluster && policy != corev1.DNSNone && policy != corev1.DNSDefault && policy != corev1.DNSClusterFirst {
		cluster = true // an unknown policy is taken for the usual one
	}
	switch {
	case policy == corev1.DNSNone:
	case cluster && len(d.Servers) > 0:
		for _, s := range d.Servers {
			c.servers = append(c.servers, s.String())
		}
		c.searches, c.options = d.searches(p.Namespace, node.searches), []string{"ndots:5"}
	default:
		if cluster {
			text := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", corev1.DNSClusterFirst, corev1.DNSDefault)
			notes = append(notes, note{"MissingClusterDNS", fmt.Sprintf("pod: %q. %s", full(p), text)})
		}
		if c = node; d.ResolvConf == "" {
			c = own(ips)
		}
	}
	if w := p.Spec.DNSConfig; w != nil {
		c.servers = unique(append(slices.Clone(c.servers), w.Nameservers...))
		c.searches = unique(append(slices.Clone(c.searches), w.Searches...))
		c.options = slices.Clone(c.options)
		for _, o := range w.Options {
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			c.options = withOption(c.options, text)
		}
	}
	c, more := c.bounded()
	return &cri.DNSConfig{Servers: c.servers, Searches: c.searches, Options: c.options}, append(notes, more...)
}

// searches are the domains of the cluster before those of the node.
func (d DNS) searches(namespace string, node []string) []string {
	if d.Domain == "" {
		return node
	}
	return unique(append([]string{namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}, node...))
}

// own asks the machine itself, which is what resolvers do when they are told nothing.
func own(ips []netip.Addr) resolv {
	c := resolv{searches: []string{"."}}
	for _, ip := range ips {
		if ip.Is6() {
			c.servers = append(c.servers, "::1")
		} else {
			c.servers = append(c.servers, "127.0.0.1")
		}
	}
	if len(c.servers) == 0 {
		c.servers = []string{"127.0.0.1"}
	}
	return c
}

// bounded drops what resolvers would not take, and says so.
func (c resolv) bounded() (resolv, []note) {
	var notes []note
	if len(c.servers) > maxServers {
		c.servers = c.servers[:maxServers]
		notes = append(notes, note{"DNSConfigForming", "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(c.servers, " ")})
	}
	fits := slices.Clone(c.searches[:min(len(c.searches), maxSearches)])
	fits = slices.DeleteFunc(fits, func(s string) bool { return len(s) > validation.DNS1123SubdomainMaxLength })
	for len(strings.Join(fits, " ")) > maxSearchChars {
		fits = fits[:len(fits)-1]
	}
	if len(fits) != len(c.searches) {
		notes = append(notes, note{"DNSConfigForming", "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(fits, " ")})
	}
	c.searches = fits
	return c, notes
}

// unique keeps the first of equal ones.
func unique(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// withOption adds an option, in the place of one with the same name.
func withOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if has, _, _ := strings.Cut(o, ":"); has == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

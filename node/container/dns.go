package container

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
)

// The limits of resolvers.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// DNS configures name resolution in Pods.
type DNS struct {
	// Servers are the name servers of the cluster; there may be none.
	Servers []netip.Addr
	// Domain is the cluster domain, such as cluster.local.
	Domain string
	// ResolvConf is the node's resolv.conf; if it is empty, Pods with the policy Default use the machine itself as name
	// server.
	ResolvConf string
}

// dns returns the resolv.conf of a Pod, and records Events about its problems.
func (m *Maker) dns(p *corev1.Pod) (*cri.DNSConfig, error) {
	node, err := readResolvConf(m.DNS.ResolvConf)
	if err != nil {
		return nil, err
	}
	c, notes := m.DNS.configFor(p, node, m.nodeIPs())
	for _, n := range notes {
		m.recordWarning(p, n.reason, n.text)
	}
	return c, nil
}

func (m *Maker) nodeIPs() []netip.Addr {
	if m.NodeIPs == nil {
		return nil
	}
	return m.NodeIPs()
}

// recordWarning records a warning about a Pod.
func (m *Maker) recordWarning(p *corev1.Pod, reason, text string) {
	if m.Events != nil {
		m.Events.Event(event.Pod(p), corev1.EventTypeWarning, reason, "%s", text)
	}
}

// warning is a warning to be recorded as an Event.
type warning struct{ reason, text string }

// configFor computes the resolv.conf of a Pod from its policy, its dnsConfig and the node's resolv.conf.
func (d DNS) configFor(p *corev1.Pod, node resolv, ips []netip.Addr) (*cri.DNSConfig, []warning) {
	var c resolv
	var notes []warning
	policy := p.Spec.DNSPolicy
	cluster := policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !p.Spec.HostNetwork
	if !cluster && policy != corev1.DNSNone && policy != corev1.DNSDefault && policy != corev1.DNSClusterFirst {
		cluster = true // an unknown policy is treated as ClusterFirst
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
			notes = append(notes, warning{"MissingClusterDNS", fmt.Sprintf("pod: %q. %s", fact.FullName(p), text)})
		}
		if c = node; d.ResolvConf == "" {
			c = loopbackServers(ips)
		}
	}
	if w := p.Spec.DNSConfig; w != nil {
		c.servers = withoutDuplicates(append(slices.Clone(c.servers), w.Nameservers...))
		c.searches = withoutDuplicates(append(slices.Clone(c.searches), w.Searches...))
		c.options = slices.Clone(c.options)
		for _, o := range w.Options {
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			c.options = withOption(c.options, text)
		}
	}
	c, more := c.withinLimits()
	return &cri.DNSConfig{Servers: c.servers, Searches: c.searches, Options: c.options}, append(notes, more...)
}

// searches returns the search domains of the cluster, followed by those of the node.
func (d DNS) searches(namespace string, node []string) []string {
	if d.Domain == "" {
		return node
	}
	return withoutDuplicates(append([]string{namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}, node...))
}

// loopbackServers returns a configuration that asks the machine itself, as resolvers do without a configuration.
func loopbackServers(ips []netip.Addr) resolv {
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

// withinLimits drops what exceeds the limits of resolvers, and returns warnings about it.
func (c resolv) withinLimits() (resolv, []warning) {
	var notes []warning
	if len(c.servers) > maxServers {
		c.servers = c.servers[:maxServers]
		notes = append(notes, warning{"DNSConfigForming", "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(c.servers, " ")})
	}
	fits := slices.Clone(c.searches[:min(len(c.searches), maxSearches)])
	fits = slices.DeleteFunc(fits, func(s string) bool { return len(s) > validation.DNS1123SubdomainMaxLength })
	for len(strings.Join(fits, " ")) > maxSearchChars {
		fits = fits[:len(fits)-1]
	}
	if len(fits) != len(c.searches) {
		notes = append(notes, warning{"DNSConfigForming", "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(fits, " ")})
	}
	c.searches = fits
	return c, notes
}

// withoutDuplicates drops duplicates, and keeps the first of each.
func withoutDuplicates(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// withOption adds an option, in the place of an option of the same name.
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

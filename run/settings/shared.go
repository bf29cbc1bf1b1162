package settings

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/clustersettings"
)

// sharedSetting is a setting that must have the same value on all nodes of a cluster.
type sharedSetting struct {
	name string
	// format writes the value as it would be given for the setting.
	format func(*Config) string
	// overridable lets a flag of an agent give that agent another value. Otherwise a flag that contradicts the cluster is refused.
	overridable bool
}

func sharedSettings() []sharedSetting {
	return []sharedSetting{
		{name: "cluster-cidr", format: func(c *Config) string { return joinWithCommas(c.ClusterCIDRs()) }},
		{name: "service-cidr", format: func(c *Config) string { return joinWithCommas(c.ServiceCIDRs) }},
		{name: "cluster-dns", format: func(c *Config) string { return joinWithCommas(c.DNSAddresses()) }},
		{name: "cluster-domain", format: func(c *Config) string { return c.Node.ClusterDomain }},
		{name: "load-balancer-ranges", format: func(c *Config) string { return joinWithCommas(c.Node.BalancerRanges) }, overridable: true},
		{name: "external-ip-ranges", format: func(c *Config) string { return joinWithCommas(c.Node.Traffic.ExternalIPs) },
			overridable: true},
	}
}

// SharedSettings returns the settings that the server publishes for the agents of other processes, as text by name.
func (c *Config) SharedSettings() map[string]string {
	out := map[string]string{}
	for _, a := range sharedSettings() {
		out[a.name] = a.format(c)
	}
	return out
}

// RecordedSettings returns the settings that must be the same on all servers that share an etcd, as text by name: those that
// nodes cannot override.
func (c *Config) RecordedSettings() map[string]string {
	out := map[string]string{"service-account-issuer": c.Issuer}
	for _, a := range sharedSettings() {
		if !a.overridable {
			out[a.name] = a.format(c)
		}
	}
	return out
}

func joinWithCommas[T fmt.Stringer](all []T) string {
	var out []string
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, ",")
}

// DNSAddresses returns the addresses of the DNS servers that Pods use.
func (c *Config) DNSAddresses() []netip.Addr {
	if len(c.Node.ClusterDNS) > 0 {
		return c.Node.ClusterDNS
	}
	var out []netip.Addr
	for _, r := range c.ServiceCIDRs {
		out = append(out, DNSAddressIn(r))
	}
	return out
}

// DNSAddressIn returns the address of the cluster's DNS in a range of Service addresses: the tenth.
func DNSAddressIn(p netip.Prefix) netip.Addr {
	ip := p.Masked().Addr()
	for range 10 {
		ip = ip.Next()
	}
	return ip
}

// ReadClusterSettings returns those of the settings that a cluster publishes which this version knows. It is an error if there are none, or
// if the value of one is invalid, for example after a change by hand.
func ReadClusterSettings(cluster map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range sharedSettings() {
		if value, has := cluster[a.name]; has {
			out[a.name] = value
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no settings", metav1.NamespaceSystem, ClusterSettingsName)
	}
	_, err := AgentConfig{}.WithClusterSettings(out)
	return out, err
}

// WithClusterSettings returns the configuration of the agent with the settings of the cluster. A flag of the agent that
// contradicts one of them is an error: Pods of this node and of others would not reach each other, or not under their
// own addresses. Settings that this version does not know are ignored.
func (c AgentConfig) WithClusterSettings(cluster map[string]string) (AgentConfig, error) {
	for _, a := range sharedSettings() {
		value, has := cluster[a.name]
		if !has || len(c.given[a.name]) > 0 && a.overridable {
			continue
		}
		if len(c.given[a.name]) > 0 {
			if own := a.format(&c.Config); own != value {
				return c, fmt.Errorf("--%s %s contradicts the cluster, which has %s: leave the flag out, and the agent learns it from the server", a.name, own, value)
			}
			continue
		}
		if err := c.set(a.name, value); err != nil {
			return c, fmt.Errorf("the cluster's setting %s (ConfigMap %s/%s): %w", a.name, metav1.NamespaceSystem, ClusterSettingsName, err)
		}
	}
	return c, nil
}

// set sets one setting; an empty value leaves it as it is.
func (c *AgentConfig) set(name, value string) error {
	all := ForAgents()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 || value == "" {
		return nil
	}
	return all[i].Set(&c.Config, []string{value})
}

// ClusterSettingsName is the name of the ConfigMap in kube-system from which agents in other processes read the
// settings that must be the same on all nodes. The server writes it when it starts, and again when it is changed or
// deleted; nodes may read it.
const ClusterSettingsName = clustersettings.Name

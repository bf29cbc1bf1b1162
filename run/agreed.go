package run

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control/clustersettings"
	"proa.dev/kinds/gr"
)

// ClusterSettings is the name of the ConfigMap in kube-system from which agents in other processes learn the settings that all nodes of a
// cluster must have alike. The server writes it when it starts, and again when somebody changes or deletes it; nodes may read it.
const ClusterSettings = clustersettings.Name

// agreedSetting is a setting that all nodes must have alike, with how its value is written.
type agreedSetting struct {
	name  string
	write func(*Config) string
	// own says that an agent may have another value if it says so; otherwise a flag of an agent that contradicts is refused.
	own bool
}

func agreedSettings() []agreedSetting {
	return []agreedSetting{
		{name: "cluster-cidr", write: func(c *Config) string { return commas(c.ClusterCIDRs()) }},
		{name: "service-cidr", write: func(c *Config) string { return commas(c.ServiceCIDRs) }},
		{name: "cluster-dns", write: func(c *Config) string { return commas(c.DNSAddresses()) }},
		{name: "cluster-domain", write: func(c *Config) string { return c.Node.ClusterDomain }},
		{name: "load-balancer-ranges", write: func(c *Config) string { return commas(c.Node.BalancerRanges) }, own: true},
		{name: "external-ip-ranges", write: func(c *Config) string { return commas(c.Node.Traffic.ExternalIPs) }, own: true},
	}
}

func commas[T fmt.Stringer](all []T) string {
	var out []string
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, ",")
}

// DNSAddresses are the addresses at which Pods ask for names.
func (c *Config) DNSAddresses() []netip.Addr {
	if len(c.Node.ClusterDNS) > 0 {
		return c.Node.ClusterDNS
	}
	var out []netip.Addr
	for _, r := range c.ServiceCIDRs {
		out = append(out, NamesAt(r))
	}
	return out
}

// clusterSettings are what agents learn from the server.
func (s *Server) clusterSettings() map[string]string {
	out := map[string]string{}
	for _, a := range agreedSettings() {
		out[a.name] = a.write(&s.Config)
	}
	return out
}

// publishSettings writes what agents learn from the server before any of them can ask; a controller keeps it.
func (s *Server) publishSettings(ctx context.Context, c client.Client) error {
	o, err := c.Get(ctx, gr.ConfigMaps, metav1.NamespaceSystem, ClusterSettings, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	have, _ := o.(*corev1.ConfigMap)
	if err != nil {
		have = nil
	}
	want := clustersettings.Decide(have, s.clusterSettings())
	switch {
	case want == nil:
		return nil
	case have == nil:
		_, err = c.Create(ctx, gr.ConfigMaps, want)
	default:
		_, err = c.Update(ctx, gr.ConfigMaps, want, "")
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil // another server has started at the same time
	}
	return err
}

// ReadSettings returns what this version knows of the settings that a cluster publishes. It is an error if one of them cannot be used, as after
// a change by hand; none at all, too.
func ReadSettings(cluster map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range agreedSettings() {
		if value, has := cluster[a.name]; has {
			out[a.name] = value
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no settings", metav1.NamespaceSystem, ClusterSettings)
	}
	_, err := AgentConfig{}.Agree(out)
	return out, err
}

// Agree returns the configuration of the agent with the settings of the cluster. A flag of the agent that contradicts one of them is an
// error: Pods of this node and of others would not reach each other, or not under their own addresses. Settings that this version
// does not know are left alone.
func (c AgentConfig) Agree(cluster map[string]string) (AgentConfig, error) {
	for _, a := range agreedSettings() {
		value, has := cluster[a.name]
		if !has || len(c.said[a.name]) > 0 && a.own {
			continue
		}
		if len(c.said[a.name]) > 0 {
			if own := a.write(&c.Config); own != value {
				return c, fmt.Errorf("--%s %s contradicts the cluster, which has %s: leave the flag out, and the agent learns it from the server", a.name, own, value)
			}
			continue
		}
		if err := c.take(a.name, value); err != nil {
			return c, fmt.Errorf("the cluster's setting %s (ConfigMap %s/%s): %w", a.name, metav1.NamespaceSystem, ClusterSettings, err)
		}
	}
	return c, nil
}

// take sets one setting; an empty value leaves it as it is.
func (c *AgentConfig) take(name, value string) error {
	all := AgentSettings()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 || value == "" {
		return nil
	}
	return all[i].Set(&c.Config, []string{value})
}

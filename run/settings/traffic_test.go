package settings

import (
	"fmt"
	"strings"
	"testing"
)

func TestTrafficSettings(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"load-balancer", "none", "none"},
		{"load-balancer", "cloud", `"cloud" is none of nodes, none`},
		{"load-balancer-ranges", "192.0.2.128/25,2001:db8::/64", "[192.0.2.128/25 2001:db8::/64]"},
		{"load-balancer-ranges", "192.0.2.1/25", "[192.0.2.0/25]"},
		{"external-ip-ranges", "203.0.113.7", "[203.0.113.7/32]"},
		{"external-ip-ranges", "here", `"here" is neither a range such as 203.0.113.0/24 nor an address`},
		{"proxy-healthz", "off", "off"},
		{"proxy-healthz", "127.0.0.1:10256", "127.0.0.1:10256"},
		{"proxy-status", "off", "off"},
		{"proxy-status", "127.0.0.1:1", "127.0.0.1:1"},
		{"proxy-healthz", "10256", `"10256" is not ADDR:PORT, for example 127.0.0.1:6443 or 0.0.0.0:6443`},
		{"stub-domain", "corp.example.org=10.0.0.53,corp.example.org=[fd00::53]:5353", "map[corp.example.org:[10.0.0.53 [fd00::53]:5353]]"},
		{"stub-domain", "corp.example.org=ns.example.org", `"corp.example.org=ns.example.org" is not ZONE=IP or ZONE=IP:PORT, for example corp.example.org=10.0.0.53`},
		{"stub-domain", "=10.0.0.53", `"=10.0.0.53" is not ZONE=IP or ZONE=IP:PORT, for example corp.example.org=10.0.0.53`},
		{"cni-conf-dir", "/etc/cni/net.d", "/etc/cni/net.d"},
		{"cni-bin-dir", "/a,/b", "[/a /b]"},
		{"service-proxy", "none", "true"},
		{"service-proxy", "proa", "false"},
		{"service-proxy", "cilium", `"cilium" is none of proa, none`},
		{"cloud-provider", "external", "true"},
		{"cloud-provider", "aws", `"aws" is none of external`},
		{"provider-id", "cloud://zone/machine", "cloud://zone/machine"},
	} {
		config, found := Default(), false
		for _, s := range All() {
			if s.Name != c.name {
				continue
			}
			found = true
			got := map[string]any{"load-balancer": &config.LoadBalancer, "load-balancer-ranges": &config.Node.BalancerRanges,
				"external-ip-ranges": &config.Node.Traffic.ExternalIPs, "proxy-healthz": &config.Node.Healthz,
				"proxy-status": &config.Node.Status,
				"stub-domain":  &config.Node.Stubs,
				"cni-conf-dir": &config.Node.CNIConf, "cni-bin-dir": &config.Node.CNIBins, "service-proxy": &config.Node.NoProxy,
				"cloud-provider": &config.Node.Cloud, "provider-id": &config.Node.ProviderID}[c.name]
			err := s.Set(&config, []string{c.value})
			text := strings.TrimPrefix(fmt.Sprint(got), "&")
			switch v := got.(type) {
			case *string:
				text = *v
			case *bool:
				text = fmt.Sprint(*v)
			default:
			}
			if err != nil {
				text = err.Error()
			}
			if text != c.want {
				t.Errorf("--%s %s: %s, want %s", c.name, c.value, text, c.want)
			}
		}
		if !found {
			t.Errorf("there is no setting %s", c.name)
		}
	}
}

// TestForeignKubelets checks how exceptions for kubelets are written.
func TestForeignKubelets(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	got, err := parseForeignKubelets([]string{"a=sha256:" + strings.ToUpper(strings.Repeat("ab:", 31)) + "AB", "kwok-*=unverified"})
	if err != nil || len(got) != 2 ||
		got[0].Node != "a" || got[0].Fingerprint != sum || got[1].Node != "kwok-*" || got[1].Fingerprint != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "a=", "=unverified", "a=sha256:", "a=sha256:abcd", "a=sha256:" + sum + "00", "a=" + sum, "[=unverified"} {
		if got, err := parseForeignKubelets([]string{bad}); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

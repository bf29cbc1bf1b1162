package run

import (
	"net/netip"
	"time"
)

// Config is everything that can be said about a control plane.
type Config struct {
	// Name is the cluster's name in kubeconfigs.
	Name string
	// DataDir holds everything the cluster keeps.
	DataDir string
	// Listen is the address of the API server.
	Listen       string
	ServiceCIDRs []netip.Prefix
	ExtraSANs    []string

	// EtcdServers are the endpoints of an external etcd; empty embeds one.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	CompactionInterval                    time.Duration

	// Issuer is the cluster's name in service-account tokens.
	Issuer string
	// Audit is the path of the audit log, and AuditPolicy that of its policy; empty for none.
	Audit, AuditPolicy string
	// Features switches features on or off by name.
	Features map[string]bool
}

// Default is a cluster on this machine.
func Default() Config {
	return Config{
		Name: "proa", Listen: "127.0.0.1:6443", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		CompactionInterval: 5 * time.Minute, Issuer: "https://kubernetes.default.svc.cluster.local",
	}
}

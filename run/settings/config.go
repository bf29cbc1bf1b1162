// Package settings holds the settings of servers and agents: the table of all settings, the flags and the config file
// by which they are given, and the configuration that results.
package settings

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"proa.dev/control/ipam"
	"proa.dev/run/admissionplugins"
	"proa.dev/run/datafolder"
	"proa.dev/server/nodeconnection"
	"proa.dev/trace/otlp"
)

// Config holds the value of every setting of a control plane and of the node agent in its process.
type Config struct {
	// Name is the name of the cluster in kubeconfigs.
	Name string
	// DataDir is the folder that holds all data of the cluster.
	DataDir string
	// Listen is the address of the API server.
	Listen string
	// HTTP2 chooses the HTTP/2 server of the API's port: own, or std for that of net/http.
	HTTP2 string
	// ShutdownDelay is how long the server goes on serving when it is asked to stop, and ShutdownTimeout how long it
	// then waits for requests in flight.
	ShutdownDelay, ShutdownTimeout time.Duration

	ServiceCIDRs []netip.Prefix
	ExtraSANs    []string
	// NodeRanges are networks whose addresses nodes may claim although the server does not see them connect from there.
	NodeRanges []netip.Prefix

	// ForeignKubelets are the nodes whose kubelets have certificates that no authority of the cluster has signed.
	ForeignKubelets []nodeconnection.ForeignKubelet
	// ClusterChanges names the keys and settings with which this server replaces those of the servers that share its etcd.
	ClusterChanges []string
	// EtcdServers are the endpoints of an external etcd; empty embeds one.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	CompactionInterval                    time.Duration

	// Encryption is the path of an EncryptionConfiguration; empty encrypts Secrets in the embedded store.
	Encryption string

	// Issuer is the issuer of service-account tokens.
	Issuer string
	// Identity configures users that are not part of the cluster, and Permission the authorizers.
	Identity   Identity
	Permission Permission
	// Audit is the path of the audit log, and AuditPolicy that of its policy; empty for none.
	Audit, AuditPolicy string
	// AuditHook is the webhook to which audit events are sent.
	AuditHook AuditHook
	// OTLP is where spans are sent; nowhere if it has no URL.
	OTLP otlp.Endpoint
	// TraceRecords is how many records of writes and of other work the server keeps; 0 records nothing. NoTraceBodies keeps
	// no bodies of writes beside them.
	TraceRecords  int
	NoTraceBodies bool
	// Admission says which admission plugins are enabled, and how they are configured.
	Admission admissionplugins.Config
	// Features has the feature gates that are given, by name.
	Features map[string]bool
	// Reading and Writing are how many reading and writing requests are served at a time. Only their sum counts: the
	// seats that priority levels share.
	Reading, Writing int
	// RequestMemory bounds the bytes that requests hold together; 0 for a quarter of the machine's memory.
	RequestMemory int64
	// NamespaceBytes bounds what the objects of one namespace have in the store; 0 for an eighth of the machine's memory.
	NamespaceBytes int64
	// Controllers chooses the controllers that run: names, with - before those that shall not run, and * for all
	// others. Empty runs all. The scheduler is called kube-scheduler here.
	Controllers []string
	// PodRanges are the ranges from which the networks of nodes are allocated; empty for the default.
	PodRanges []ipam.Range
	// NodeCIDRsByHand is set where administrators assign the networks of nodes, and the server allocates none.
	NodeCIDRsByHand bool
	// SchedulerConfig is the path of a KubeSchedulerConfiguration; empty for none.
	SchedulerConfig string
	// LoadBalancer says whose addresses Services of type LoadBalancer get: nodes, or none if another program gives them
	// addresses.
	LoadBalancer string
	// Simulate is the number of simulated nodes.
	Simulate int
	// Node configures the node agent of this process.
	Node NodeConfig
	// Ingress configures how Ingresses and Gateways are served.
	Ingress IngressConfig
	// Nodes is how many nodes of this machine run containers: that of this process, and further ones in network
	// namespaces. Zero keeps the nodes there are.
	Nodes int
	// LogLevel is the lowest level that is logged.
	LogLevel slog.Level

	// given has the settings that were given, by flag or config file.
	given Values
}

// Given returns the values that were given for a setting.
func (c *Config) Given(name string) []string { return c.given[name] }

// FormatGiven returns a config file with the settings that were given. Their paths are absolute.
func (c *Config) FormatGiven() ([]byte, error) {
	given := Values{}
	for name, values := range c.given {
		given[name] = slices.Clone(values)
	}
	if err := given.Absolute(); err != nil {
		return nil, err
	}
	return given.Format()
}

// Default returns the configuration of a cluster on this machine when no setting is given.
func Default() Config {
	return Config{
		Name: "proa", DataDir: datafolder.Default(), Listen: "127.0.0.1:6443", HTTP2: ownHTTP2, ShutdownTimeout: time.Minute,
		ServiceCIDRs:       []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		CompactionInterval: 5 * time.Minute, Issuer: "https://kubernetes.default.svc.cluster.local",
		LogLevel: slog.LevelInfo, Reading: 400, Writing: 200, Identity: defaultIdentity(), Permission: defaultPermission(),
		TraceRecords: defaultTraceRecords, Node: defaultNode(), Ingress: defaultIngress(),
	}
}

// Setting is one setting of a server or an agent. It is given by a flag of its name, or by a key of its name in the
// config file.
type Setting struct {
	Name string
	// Help describes the setting for users. The placeholder of its value stands in backquotes.
	Help string
	// Many tells that the setting may be given several times, and may be a list in the config file.
	Many bool
	// Set parses the values, of which there is at least one, into the config. Its errors do not name the setting.
	Set func(c *Config, values []string) error
}

// All returns all settings, in the order of help.
func All() []Setting {
	return slices.Concat(serverSettings(), httpSettings(), shutdownSettings(), identitySettings(), permissionSettings(), auditSettings(),
		traceSettings(), otlpSettings(), nodeSettings(), ingressSettings(), balancerSettings())
}

func serverSettings() []Setting {
	return []Setting{
		{Name: "data-dir", Help: "keep all data of the cluster in the folder `DIR`",
			Set: setOne(func(c *Config, v string) (err error) { c.DataDir, err = datafolder.Resolve(v); return err })},
		{Name: "listen", Help: "serve the API at `ADDR:PORT`",
			Set: setOne(func(c *Config, v string) (err error) { c.Listen, err = parseListen(v); return err })},
		{Name: "name", Help: "call the cluster, and its context in kubeconfigs, `NAME`",
			Set: setOne(func(c *Config, v string) error { c.Name = v; return checkName(v) })},
		{Name: "service-cidr", Help: "take cluster IPs from the range `CIDR`; a second one of the other family makes the cluster dual-stack", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.ServiceCIDRs, err = parseCIDRs(splitLists(vs))
				return err
			}},
		{Name: "cluster-cidr", Help: "take the networks of nodes, a /24 or /64 each, from the range `CIDR`; a second one of the other family for dual stack", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.PodRanges, err = ipam.Parse(splitLists(vs), 24, 64)
				return err
			}},
		{Name: "allocate-node-cidrs", Help: "`BOOL`: allocate a network for the Pods of every node, and refuse any other (default true)",
			Set: setOne(func(c *Config, v string) error {
				on, err := strconv.ParseBool(v)
				c.NodeCIDRsByHand = !on
				return err
			})},
		{Name: "tls-san", Help: "make the API server's certificate valid for a further `NAME` or address", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.ExtraSANs, err = parseSANs(splitLists(vs)); return err }},
		{Name: "node-address-ranges", Help: "let nodes claim addresses in the networks `CIDR,...` although the server does not see them connect from there: behind NAT, of further interfaces, of the other IP family", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.NodeRanges, err = parseNodeRanges(splitLists(vs))
				return err
			}},
		{Name: "foreign-kubelets", Help: "connect to the kubelet of a node although no authority of the cluster has signed its certificate: `NAME=sha256:FINGERPRINT`, or NAME=unverified; * in the name stands for any characters", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.ForeignKubelets, err = parseForeignKubelets(splitLists(vs))
				return err
			}},
		{Name: "etcd-servers", Help: "use the etcd cluster at `URL,URL` instead of the embedded one", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.EtcdServers, err = parseURLs(splitLists(vs)); return err }},
		{Name: "change-cluster", Help: "replace what the servers that share the etcd have recorded of the settings and keys `NAME,...` by those of this server; once, see the guide", Many: true,
			Set: func(c *Config, vs []string) error { c.ClusterChanges = splitLists(vs); return nil }},
		{Name: "etcd-cafile", Help: "trust the certificate authorities in `FILE` when connecting to the external etcd", Set: setFile(func(c *Config) *string { return &c.EtcdCAFile })},
		{Name: "etcd-certfile", Help: "show the client certificate in `FILE` to the external etcd",
			Set: setFile(func(c *Config) *string { return &c.EtcdCertFile })},
		{Name: "etcd-keyfile", Help: "use the key in `FILE` with the client certificate for the external etcd", Set: setFile(func(c *Config) *string { return &c.EtcdKeyFile })},
		{Name: "encryption-provider-config", Help: "encrypt objects in the store as the EncryptionConfiguration in `FILE` says; changes of the file are applied while the server runs", Set: setFile(func(c *Config) *string { return &c.Encryption })},
		{Name: "audit-log-path", Help: "write audit events to `FILE`; - means standard output",
			Set: setOne(func(c *Config, v string) error { c.Audit = v; return nil })},
		{Name: "audit-policy-file", Help: "record in the audit log what the audit policy in `FILE` says; without one, the metadata of every request and no bodies", Set: setFile(func(c *Config) *string { return &c.AuditPolicy })},
		{Name: "enable-admission-plugins", Help: "enable the admission plugins `NAME,...` in addition to those that are enabled by default", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Admission.Enable, err = admissionplugins.ParseNames(splitLists(vs), true)
				return err
			}},
		{Name: "disable-admission-plugins", Help: "disable the admission plugins `NAME,...`", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Admission.Disable, err = admissionplugins.ParseNames(splitLists(vs), false)
				return err
			}},
		{Name: "admission-control-config-file", Help: "read the configuration of admission plugins, an AdmissionConfiguration, from `FILE`", Set: setOne(func(c *Config, v string) error {
			path, err := datafolder.Absolute(v)
			if err != nil {
				return err
			}
			c.Admission.Plugins, err = admissionplugins.ReadConfig(path)
			return err
		})},
		{Name: "feature-gates", Help: "switch features on or off: `NAME=BOOL,...`", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Features, err = parseFeatures(splitLists(vs))
				return err
			}},
		{Name: "max-requests-inflight", Help: "serve `N` requests at a time, plus those of max-mutating-requests-inflight; priority levels share the sum",
			Set: setOne(func(c *Config, v string) (err error) { c.Reading, err = parseCount(v); return err })},
		{Name: "max-mutating-requests-inflight", Help: "add `N` to the requests that are served at a time, see max-requests-inflight",
			Set: setOne(func(c *Config, v string) (err error) { c.Writing, err = parseCount(v); return err })},
		{Name: "max-request-memory", Help: "let all requests and responses together hold `AMOUNT` of memory, such as 2Gi, and those of one user a quarter of it (default a quarter of the machine's memory, from 512Mi to 4Gi)",
			Set: setOne(func(c *Config, v string) (err error) { c.RequestMemory, err = parseMemory(v); return err })},
		{Name: "max-namespace-bytes", Help: "let the objects of one namespace have `AMOUNT` in the store, such as 2Gi, each counted with 1Ki more; of those of kube-system, kube-public and kube-node-lease only what nodes create counts (default an eighth of the machine's memory, from 128Mi to 2Gi)",
			Set: setOne(func(c *Config, v string) (err error) { c.NamespaceBytes, err = parseMemory(v); return err })},
		{Name: "service-account-issuer", Help: "use `URL` as the issuer of service-account tokens",
			Set: setOne(func(c *Config, v string) error { c.Issuer = v; return checkIssuer(v) })},
		{Name: "controllers", Help: "run only the controllers `NAME,...`; * stands for all, and -NAME leaves one out, as in *,-job-controller; the scheduler is called kube-scheduler", Many: true,
			Set: func(c *Config, vs []string) error { c.Controllers = splitLists(vs); return nil }},
		{Name: "scheduler-config", Help: "configure the scheduler by the KubeSchedulerConfiguration in `FILE`",
			Set: setFile(func(c *Config) *string { return &c.SchedulerConfig })},
		{Name: "simulate", Help: "run `N` simulated nodes: Pods on them go through their phases without a container",
			Set: setOne(func(c *Config, v string) (err error) { c.Simulate, err = parseCount(v); return err })},
		{Name: "nodes", Help: "run containers on `N` nodes of this machine: the first is the machine itself, the others have a network namespace each; it needs root",
			Set: setOne(func(c *Config, v string) (err error) { c.Nodes, err = parseNodes(v); return err })},
		{Name: "log-level", Help: "log messages of `LEVEL` debug, info, warn or error and above",
			Set: setOne(func(c *Config, v string) error {
				if err := c.LogLevel.UnmarshalText([]byte(v)); err != nil {
					return fmt.Errorf("%q is none of debug, info, warn and error", v)
				}
				return nil
			})},
	}
}

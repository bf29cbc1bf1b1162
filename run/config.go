package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/ipam"
)

// Config is everything that can be said about a control plane.
type Config struct {
	// Name is the cluster's name in kubeconfigs.
	Name string
	// DataDir holds everything the cluster keeps.
	DataDir string
	// Listen is the address of the API server.
	Listen string
	// HTTP2 chooses the HTTP/2 server of the API's port: own, or std for the one of net/http.
	HTTP2 string
	// ShutdownDelay is how long the server goes on serving when it is asked to stop, and ShutdownTimeout how long it then waits for requests in flight.
	ShutdownDelay, ShutdownTimeout time.Duration

	ServiceCIDRs []netip.Prefix
	ExtraSANs    []string
	// NodeRanges are the networks whose addresses nodes may claim although the server does not see them come from there.
	NodeRanges []netip.Prefix

	// EtcdServers are the endpoints of an external etcd; empty embeds one.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	CompactionInterval                    time.Duration

	// Encryption is the path of an EncryptionConfiguration; empty encrypts Secrets in the embedded store.
	Encryption string

	// Issuer is the cluster's name in service-account tokens.
	Issuer string
	// Identity and Permission are who users are and what they may do, as far as the cluster does not know by itself.
	Identity   Identity
	Permission Permission
	// Audit is the path of the audit log, and AuditPolicy that of its policy; empty for none.
	Audit, AuditPolicy string
	// AuditHook is where audit events are sent.
	AuditHook AuditHook
	// Admission says which admission plugins there are, and how they work.
	Admission Admission
	// Features switches features on or off by name.
	Features map[string]bool
	// Reading and Writing are how many requests that read, and that write, are served at a time. What counts is the sum: the
	// seats that priority levels share.
	Reading, Writing int
	// RequestMemory bounds the bytes that requests hold together; 0 for a quarter of the machine's memory.
	RequestMemory int64
	// Controllers chooses among the loops: names, with - before those that shall not run, and * for all others. Empty runs
	// all. The scheduler is called kube-scheduler here.
	Controllers []string
	// PodRanges are where the networks of the nodes' Pods come from; empty for the usual one.
	PodRanges []ipam.Range
	// NodeCIDRsByHand is set where administrators write the networks of nodes themselves, and the server allocates none.
	NodeCIDRsByHand bool
	// SchedulerConfig is the path of a KubeSchedulerConfiguration; empty for none.
	SchedulerConfig string
	// LoadBalancer says who gives Services of type LoadBalancer their addresses: nodes, or none where others do.
	LoadBalancer string
	// Simulate is the number of simulated nodes.
	Simulate int
	// Node is the node agent of this process.
	Node NodeConfig
	// Ingress is how Ingresses are served.
	Ingress IngressConfig
	// Nodes is how many nodes of this machine run containers: that of this process, and further ones in network namespaces.
	// Zero is what there is already.
	Nodes int
	// LogLevel is the least level that is logged.
	LogLevel slog.Level

	// said is what the config was made of.
	said Said

	// Machine is what the process has beside the control plane; nil for nothing, and then there are no nodes but simulated ones.
	Machine Machine

	// What follows are seams for tests, which no flag reaches.

	// Memory keeps the objects in memory only. Alone opens no socket: only this process reaches the cluster.
	Memory, Alone bool
	// Serving is the certificate that the API's port shows instead of one of the cluster's own authority; nil for that one.
	Serving *tls.Certificate
	// Loops chooses among the controllers, and may change them; nil runs them all.
	Loops func([]control.Controller) []control.Controller
	// Wrap stands between a controller and the cluster.
	Wrap func(name string, c client.Client) client.Client
	// StoreHook is called before each operation of the store; an error it returns is the operation's, as if the store
	// were away.
	StoreHook func(op, key string) error
	// Prepare is called in its order when the server serves and its controllers run, before Serve says that the server is ready. An error
	// ends the server.
	Prepare []func(context.Context, *Server) error
}

// Said is what was said about a setting.
func (c *Config) Said(name string) []string { return c.said[name] }

// Default is a cluster on this machine.
func Default() Config {
	return Config{
		Name: "proa", DataDir: DefaultDataDir(), Listen: "127.0.0.1:6443", HTTP2: ownHTTP2, ShutdownTimeout: time.Minute,
		ServiceCIDRs:       []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		CompactionInterval: 5 * time.Minute, Issuer: "https://kubernetes.default.svc.cluster.local",
		LogLevel: slog.LevelInfo, Reading: 400, Writing: 200, Identity: defaultIdentity(), Permission: defaultPermission(), Node: defaultNode(), Ingress: defaultIngress(),
	}
}

// DataFolder returns the path of a data folder that a user has written: absolute, and without symbolic links, since nodes name their network
// interfaces, rules and cgroups after it. The folder need not be there yet.
func DataFolder(path string) (string, error) {
	path, err := absolute(path)
	for range 40 { // as many links as the kernel follows
		if err != nil {
			return "", err
		}
		real, missing := filepath.EvalSymlinks(path)
		switch {
		case missing == nil:
			return real, nil
		case errors.Is(missing, fs.ErrPermission):
			return path, nil // whoever uses it says whose it is
		case !errors.Is(missing, fs.ErrNotExist):
			return "", missing
		}
		target, notLink := os.Readlink(path)
		switch {
		case notLink == nil && filepath.IsAbs(target):
			path = target
		case notLink == nil:
			path = filepath.Join(filepath.Dir(path), target)
		default:
			parent, err := DataFolder(filepath.Dir(path))
			return filepath.Join(parent, filepath.Base(path)), err
		}
	}
	return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
}

// DefaultDataDir is where a cluster lives when nobody says otherwise: a system folder for root, a folder in the home of
// everybody else.
func DefaultDataDir() string {
	path := "proa-data" // no home: a folder here is the best that is left
	if os.Geteuid() == 0 {
		path = "/var/lib/proa"
	} else if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		path = filepath.Join(base, "proa")
	} else if home, err := os.UserHomeDir(); err == nil {
		path = filepath.Join(home, ".local", "share", "proa")
	}
	real, err := DataFolder(path)
	if err != nil {
		return path // whoever uses it says why it cannot be
	}
	return real
}

// Setting is one thing that can be said about a control plane: by a flag of its name, or by a key of its name in the
// config file.
type Setting struct {
	Name string
	Help string // the word for the value stands in backquotes
	// Many settings may be given several times, and take lists in the config file.
	Many bool
	// Set puts the values, at least one, into the config. Its errors say what is wrong with the value, not where it stood.
	Set func(c *Config, values []string) error
}

// Settings are all settings, in the order of help.
func Settings() []Setting {
	return slices.Concat(serverSettings(), httpSettings(), shutdownSettings(), identitySettings(), permissionSettings(), auditSettings(), nodeSettings(), ingressSettings(), balancerSettings())
}

func serverSettings() []Setting {
	return []Setting{
		{Name: "data-dir", Help: "keep everything in the folder `DIR`",
			Set: one(func(c *Config, v string) (err error) { c.DataDir, err = DataFolder(v); return err })},
		{Name: "listen", Help: "serve the API at `ADDR:PORT`",
			Set: one(func(c *Config, v string) (err error) { c.Listen, err = parseListen(v); return err })},
		{Name: "name", Help: "call the cluster, and its context in kubeconfigs, `NAME`",
			Set: one(func(c *Config, v string) error { c.Name = v; return checkName(v) })},
		{Name: "service-cidr", Help: "take cluster IPs from the range `CIDR`; a second one of the other family makes the cluster dual-stack", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.ServiceCIDRs, err = parseCIDRs(split(vs)); return err }},
		{Name: "cluster-cidr", Help: "take the networks of nodes, a /24 or /64 each, from the range `CIDR`; a second one of the other family for dual stack", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.PodRanges, err = ipam.Parse(split(vs), 24, 64); return err }},
		{Name: "allocate-node-cidrs", Help: "give every node a network for its Pods, and let nobody give it another; `BOOL`, true if not said",
			Set: one(func(c *Config, v string) error {
				on, err := strconv.ParseBool(v)
				c.NodeCIDRsByHand = !on
				return err
			})},
		{Name: "tls-san", Help: "put the further `NAME` or address into the API server's certificate", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.ExtraSANs, err = parseSANs(split(vs)); return err }},
		{Name: "node-address-ranges", Help: "let nodes claim addresses in the networks `CIDR,...` although the server does not see them connect from there: behind NAT, of further interfaces, of the other IP family", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.NodeRanges, err = parseNodeRanges(split(vs)); return err }},
		{Name: "etcd-servers", Help: "use the etcd cluster at `URL,URL` instead of the embedded one", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.EtcdServers, err = parseURLs(split(vs)); return err }},
		{Name: "etcd-cafile", Help: "trust the certificates in `FILE` to vouch for the external etcd", Set: file(func(c *Config) *string { return &c.EtcdCAFile })},
		{Name: "etcd-certfile", Help: "show the client certificate in `FILE` to the external etcd", Set: file(func(c *Config) *string { return &c.EtcdCertFile })},
		{Name: "etcd-keyfile", Help: "with the key in `FILE`", Set: file(func(c *Config) *string { return &c.EtcdKeyFile })},
		{Name: "encryption-provider-config", Help: "encrypt in the store what the EncryptionConfiguration in `FILE` says; it is read again when it changes", Set: file(func(c *Config) *string { return &c.Encryption })},
		{Name: "audit-log-path", Help: "write audit events to `FILE`; - is standard output",
			Set: one(func(c *Config, v string) error { c.Audit = v; return nil })},
		{Name: "audit-policy-file", Help: "log what the audit policy in `FILE` says; without one, who did what, and no bodies", Set: file(func(c *Config) *string { return &c.AuditPolicy })},
		{Name: "enable-admission-plugins", Help: "use the admission plugins `NAME,...` besides those that are on", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Admission.Enable, err = parsePlugins(split(vs), true)
				return err
			}},
		{Name: "disable-admission-plugins", Help: "do without the admission plugins `NAME,...`", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Admission.Disable, err = parsePlugins(split(vs), false)
				return err
			}},
		{Name: "admission-control-config-file", Help: "configure admission plugins as `FILE` says", Set: one(func(c *Config, v string) error {
			path, err := absolute(v)
			if err != nil {
				return err
			}
			c.Admission.Plugins, err = readAdmissionConfig(path)
			return err
		})},
		{Name: "feature-gates", Help: "switch features on or off: `NAME=BOOL,...`", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Features, err = parseFeatures(split(vs)); return err }},
		{Name: "max-requests-inflight", Help: "serve `N` requests at a time; priority levels share them, and those of max-mutating-requests-inflight, out",
			Set: one(func(c *Config, v string) (err error) { c.Reading, err = parseCount(v); return err })},
		{Name: "max-mutating-requests-inflight", Help: "serve `N` more at a time",
			Set: one(func(c *Config, v string) (err error) { c.Writing, err = parseCount(v); return err })},
		{Name: "max-request-memory", Help: "let requests and their answers hold `AMOUNT` of memory together, such as 2Gi, and one user a quarter of it; without it a quarter of the machine's, from 512Mi to 4Gi",
			Set: one(func(c *Config, v string) (err error) { c.RequestMemory, err = parseMemory(v); return err })},
		{Name: "service-account-issuer", Help: "name the cluster `URL` in service-account tokens",
			Set: one(func(c *Config, v string) error { c.Issuer = v; return checkIssuer(v) })},
		{Name: "controllers", Help: "run only these loops: `NAME,...`; * stands for all, and -NAME takes one of them away, as in *,-job-controller; kube-scheduler is one of them", Many: true,
			Set: func(c *Config, vs []string) error { c.Controllers = split(vs); return nil }},
		{Name: "scheduler-config", Help: "schedule as the KubeSchedulerConfiguration in `FILE` says", Set: file(func(c *Config) *string { return &c.SchedulerConfig })},
		{Name: "simulate", Help: "run `N` simulated nodes: Pods on them go through their phases without a container",
			Set: one(func(c *Config, v string) (err error) { c.Simulate, err = parseCount(v); return err })},
		{Name: "nodes", Help: "run containers on `N` nodes of this machine: the first is the machine itself, the others have a network namespace each; it needs root",
			Set: one(func(c *Config, v string) (err error) { c.Nodes, err = parseNodes(v); return err })},
		{Name: "log-level", Help: "log at `LEVEL` debug, info, warn or error", Set: one(func(c *Config, v string) error {
			if err := c.LogLevel.UnmarshalText([]byte(v)); err != nil {
				return fmt.Errorf("%q is none of debug, info, warn and error", v)
			}
			return nil
		})},
	}
}

// Validate finds settings that do not go together.
func (c *Config) Validate() error {
	switch {
	case len(c.EtcdServers) == 0 && c.EtcdCAFile+c.EtcdCertFile+c.EtcdKeyFile != "":
		return fmt.Errorf("etcd-cafile, etcd-certfile and etcd-keyfile are for an external etcd; give its address with etcd-servers")
	case (c.EtcdCertFile == "") != (c.EtcdKeyFile == ""):
		return fmt.Errorf("etcd-certfile and etcd-keyfile belong together; give both or neither")
	case c.Reading+c.Writing < 1:
		return fmt.Errorf("max-requests-inflight and max-mutating-requests-inflight: one of them must be more than 0")
	case c.Nodes > 1 && len(c.Node.IPs) > 0:
		return fmt.Errorf("node-ip is for one node; several nodes of a machine have addresses on the link that they share")
	case c.Nodes > 1 && c.Node.ProviderID != "":
		return fmt.Errorf("provider-id is for one node; let the cloud's controllers say it")
	case c.Nodes > 1 && c.Node.Runtime != "":
		return fmt.Errorf("container-runtime-endpoint is for one node; several nodes of a machine have a runtime each")
	case c.AuditPolicy != "" && c.Audit == "" && c.AuditHook.Config == "":
		return fmt.Errorf("audit-policy-file needs audit-log-path or audit-webhook-config-file: say where the events go")
	}
	for _, check := range []func() error{c.checkLoops, c.checkIdentity, c.checkPermission, c.checkAudit, c.checkEncryption, c.checkIngress} {
		if err := check(); err != nil {
			return err
		}
	}
	if _, err := c.readScheduling(); err != nil {
		return err
	}
	return c.Admission.validate()
}

// parseCount reads a number of nodes or of requests.
func parseCount(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > maxCount {
		return 0, fmt.Errorf("%q is not a number between 0 and %d", v, maxCount)
	}
	return n, nil
}

// parseNodes reads a number of nodes that run containers.
func parseNodes(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxNodes {
		return 0, fmt.Errorf("%q is not a number between 1 and %d", v, maxNodes)
	}
	return n, nil
}

// maxNodes bounds the nodes of one machine that run containers: each has an agent and a runtime.
const maxNodes = 50

// maxCount bounds simulated nodes and requests at a time; more would not fit into one process.
const maxCount = 20000

// one makes a Set for a setting that can be said once; of several values the last wins, as is usual for flags.
func one(set func(*Config, string) error) func(*Config, []string) error {
	return func(c *Config, vs []string) error {
		v := vs[len(vs)-1]
		if v == "" {
			return fmt.Errorf("the value is empty")
		}
		return set(c, v)
	}
}

// file makes a Set for a path that must be readable now, so that a typing error is not found by a server already running.
func file(field func(*Config) *string) func(*Config, []string) error {
	return one(func(c *Config, v string) error {
		path, err := absolute(v)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		*field(c) = path
		return f.Close()
	})
}

func absolute(v string) (string, error) {
	if strings.HasPrefix(v, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		v = filepath.Join(home, v[2:])
	}
	return filepath.Abs(v)
}

// split takes lists apart that were written with commas.
func split(vs []string) (out []string) {
	for _, v := range vs {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

func parseListen(v string) (string, error) {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return "", fmt.Errorf("%q is not ADDR:PORT, for example 127.0.0.1:6443 or 0.0.0.0:6443", v)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || (n == 0 && port != "0") {
		return "", fmt.Errorf("%q is not a port", port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("%q is not an IP address; names go into tls-san", host)
		}
	}
	return net.JoinHostPort(host, port), nil
}

func checkName(v string) error {
	if problems := validation.IsDNS1123Subdomain(v); len(problems) > 0 {
		return fmt.Errorf("%q: %s", v, problems[0])
	}
	return nil
}

func parseCIDRs(vs []string) ([]netip.Prefix, error) {
	if len(vs) == 0 || len(vs) > 2 {
		return nil, fmt.Errorf("give one range, or two of different families, not %d", len(vs))
	}
	var out []netip.Prefix
	for _, v := range vs {
		p, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a range such as 10.96.0.0/16", v)
		case p != p.Masked():
			return nil, fmt.Errorf("%q has bits after its length; did you mean %s", v, p.Masked())
		case p.Addr().BitLen()-p.Bits() < 3:
			return nil, fmt.Errorf("%q is too small: it needs room for eight addresses at least", v)
		case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
			return nil, fmt.Errorf("%q cannot be used for services", v)
		}
		out = append(out, p)
	}
	if len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, fmt.Errorf("two ranges must be of different families, one IPv4 and one IPv6")
	}
	return out, nil
}

func parseSANs(vs []string) ([]string, error) {
	for _, v := range vs {
		if _, err := netip.ParseAddr(v); err == nil {
			continue
		}
		if len(validation.IsDNS1123Subdomain(v)) > 0 && len(validation.IsWildcardDNS1123Subdomain(v)) > 0 {
			return nil, fmt.Errorf("%q is neither a DNS name nor an IP address", v)
		}
	}
	return vs, nil
}

func parseURLs(vs []string) ([]string, error) {
	if len(vs) == 0 {
		return nil, fmt.Errorf("the value is empty")
	}
	for _, v := range vs {
		u, err := url.Parse(v)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return nil, fmt.Errorf("%q is not a URL such as https://10.0.0.1:2379", v)
		}
	}
	return vs, nil
}

func checkIssuer(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an https URL without query", v)
	}
	return nil
}

package run

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/quantity"
	"proa.dev/node/shutdown"
	"proa.dev/parts/carry"
)

// NodeConfig is everything that can be said about the node agent of a process. The names are those that kubelets have.
type NodeConfig struct {
	// Name is that of the Node; empty for no agent.
	Name string
	IPs  []netip.Addr
	// Labels and Taints are given to the Node when it registers.
	Labels map[string]string
	Taints []corev1.Taint
	// Port is where the agent serves logs, streams and numbers.
	Port int
	// Runtime is the socket of a runtime that somebody else runs; empty starts an own one.
	Runtime string
	// BinDir has the programs of the own runtime.
	BinDir string
	// CgroupDriver is cgroupfs or systemd; empty chooses.
	CgroupDriver string
	// RegistryDirs have folders with a hosts.toml for each registry.
	RegistryDirs []string
	// ResolvConf is the file that names the node's own name servers; empty finds it.
	ResolvConf string
	// StaticPods is a folder of manifests, StaticURL an address of one; empty for none.
	StaticPods, StaticURL        string
	KubeReserved, SystemReserved corev1.ResourceList
	EvictionHard, EvictionSoft   map[string]string
	EvictionGrace                map[string]time.Duration
	MaxPods, PodPids             int
	// Traffic is how Services and names are reached.
	Traffic
	// ImageHigh and ImageLow are how full the disk may be, in percent, before images go, and after.
	ImageHigh, ImageLow int
	ClusterDNS          []netip.Addr
	ClusterDomain       string
	UnsafeSysctls       []string
	ImageCredentials    string // the path of a CredentialProviderConfig
	ImageCredentialsBin string
	// ImageVerify says when Pods must show a login for an image that is here, and ImageAllowed which images are for all.
	ImageVerify  string
	ImageAllowed []string
	Align        Align
	// Pulls is how many images are pulled at a time, LogSize and LogFiles bound the log of a container; 0 for the usual ones.
	Pulls, LogFiles int
	LogSize         int64
	// SeccompDefault gives containers that name no seccomp profile that of the runtime, RuntimeDefault, instead of none; privileged ones
	// have none in any case. Swap lets burstable Pods use swap.
	SeccompDefault, Swap bool
	// ShutdownGrace and ShutdownCritical, or ShutdownBy, are how long Pods have when the machine goes down.
	ShutdownGrace, ShutdownCritical time.Duration
	ShutdownBy                      []shutdown.Period
}

// DefaultNodeName is the name of this machine as a Node would have it.
func DefaultNodeName() string {
	name, err := os.Hostname()
	if name = strings.ToLower(name); err != nil || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "node"
	}
	return name
}

func defaultNode() NodeConfig {
	return NodeConfig{Port: 10250, MaxPods: 110, ClusterDomain: "cluster.local", ImageHigh: 85, ImageLow: 80, SeccompDefault: true}
}

// nodeSettings are those about the node agent.
func nodeSettings() []Setting {
	on := func(set func(*NodeConfig, string) error) func(*Config, []string) error {
		return one(func(c *Config, v string) error { return set(&c.Node, v) })
	}
	return slices.Concat([]Setting{
		{Name: "node", Help: "run a node agent in this process too, for the Node `NAME`; it needs root",
			Set: on(func(n *NodeConfig, v string) error { n.Name = v; return checkName(v) })},
		{Name: "node-ip", Help: "the node's address is `IP`; a second one of the other family for dual stack", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.IPs, err = parseIPs(split(vs)); return err }},
		{Name: "node-labels", Help: "label the Node `KEY=VALUE,...` when it registers", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.Labels, err = parsePairs(split(vs)); return err }},
		{Name: "register-with-taints", Help: "taint the Node `KEY=VALUE:EFFECT,...` when it registers", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.Taints, err = parseTaints(split(vs)); return err }},
		{Name: "node-port", Help: "the agent serves logs, streams and numbers at port `N`; 0 for any",
			Set: on(func(n *NodeConfig, v string) (err error) { n.Port, err = parsePort(v); return err })},
		{Name: "container-runtime-endpoint", Help: "use the container runtime at the `SOCKET` that somebody else runs, instead of an own one",
			Set: on(func(n *NodeConfig, v string) error { n.Runtime = v; return nil })},
		{Name: "bin-dir", Help: "find containerd and its companions in `DIR`; beside this program if not said",
			Set: on(func(n *NodeConfig, v string) (err error) { n.BinDir, err = absolute(v); return err })},
		{Name: "cgroup-driver", Help: "let `DRIVER` cgroupfs or systemd make the groups of Pods", Set: on(func(n *NodeConfig, v string) error {
			n.CgroupDriver = v
			return oneOf(v, "cgroupfs", "systemd")
		})},
		{Name: "registry-dir", Help: "find mirrors and certificates of registries in `DIR`/HOST/hosts.toml", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.RegistryDirs = split(vs); return nil }},
		{Name: "pod-manifest-path", Help: "run the Pods whose manifests are in `DIR`",
			Set: on(func(n *NodeConfig, v string) (err error) { n.StaticPods, err = absolute(v); return err })},
		{Name: "manifest-url", Help: "run the Pods whose manifests are at `URL`", Set: on(func(n *NodeConfig, v string) error { n.StaticURL = v; return nil })},
		{Name: "kube-reserved", Help: "keep `RESOURCE=AMOUNT,...` for this process", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.KubeReserved, err = parseAmounts(split(vs))
				return err
			}},
		{Name: "system-reserved", Help: "keep `RESOURCE=AMOUNT,...` for the rest of the machine", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.SystemReserved, err = parseAmounts(split(vs))
				return err
			}},
		{Name: "eviction-hard", Help: "evict Pods at once when `SIGNAL<AMOUNT,...`, as in memory.available<100Mi", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionHard, err = parseThresholds(split(vs))
				return err
			}},
		{Name: "eviction-soft", Help: "evict Pods when `SIGNAL<AMOUNT,...` for the time that eviction-soft-grace-period says", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionSoft, err = parseThresholds(split(vs))
				return err
			}},
		{Name: "eviction-soft-grace-period", Help: "`SIGNAL=DURATION,...` for eviction-soft", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionGrace, err = parseTimes(split(vs))
				return err
			}},
		{Name: "max-pods", Help: "run at most `N` Pods", Set: on(func(n *NodeConfig, v string) (err error) { n.MaxPods, err = parseCount(v); return err })},
		{Name: "pod-max-pids", Help: "let a Pod have at most `N` processes", Set: on(func(n *NodeConfig, v string) (err error) { n.PodPids, err = strconv.Atoi(v); return err })},
		{Name: "image-gc-high-threshold", Help: "remove images that nobody uses when the disk is `N` percent full; 100 for never", Set: on(func(n *NodeConfig, v string) (err error) {
			n.ImageHigh, err = parsePercent(v)
			n.ImageLow = min(n.ImageLow, max(0, n.ImageHigh-1))
			return err
		})},
		{Name: "image-gc-low-threshold", Help: "until it is `N` percent full", Set: on(func(n *NodeConfig, v string) (err error) { n.ImageLow, err = parsePercent(v); return err })},
		{Name: "cluster-dns", Help: "Pods ask the DNS servers `IP,...`; the tenth address of service-cidr if not said", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.ClusterDNS, err = parseIPs(split(vs)); return err }},
		{Name: "cluster-domain", Help: "the cluster's DNS `DOMAIN`",
			Set: on(func(n *NodeConfig, v string) error { n.ClusterDomain = v; return checkName(v) })},
		{Name: "resolv-conf", Help: "the node, and Pods that use its name servers, find them in `FILE`; /etc/resolv.conf if not said, or what systemd-resolved writes",
			Set: file(func(c *Config) *string { return &c.Node.ResolvConf })},
		{Name: "allowed-unsafe-sysctls", Help: "let Pods set these kernel settings too: `NAME,...`, which may end with *", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.UnsafeSysctls = split(vs); return nil }},
		{Name: "image-credential-provider-config", Help: "ask the plugins in the CredentialProviderConfig `FILE` for registry passwords",
			Set: file(func(c *Config) *string { return &c.Node.ImageCredentials })},
		{Name: "image-credential-provider-bin-dir", Help: "find those plugins in `DIR`",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ImageCredentialsBin, err = absolute(v); return err })},
	}, imageSettings(), alignSettings(), trafficSettings())
}

func oneOf(v string, known ...string) error {
	for _, k := range known {
		if v == k {
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(known, ", "))
}

func parseIPs(vs []string) (out []netip.Addr, err error) {
	for _, v := range vs {
		ip, err := netip.ParseAddr(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", v)
		}
		out = append(out, ip)
	}
	return out, nil
}

func parsePort(v string) (int, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port", v)
	}
	return int(n), nil
}

func parsePercent(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("%q is not a number between 0 and 100", v)
	}
	return n, nil
}

func parsePairs(vs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range vs {
		key, value, _ := strings.Cut(v, "=")
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", v, problems[0])
		}
		out[key] = value
	}
	return out, nil
}

func parseTaints(vs []string) (out []corev1.Taint, err error) {
	for _, v := range vs {
		at := strings.LastIndexByte(v, ':')
		if at < 0 {
			return nil, fmt.Errorf("%q is not KEY=VALUE:EFFECT", v)
		}
		key, value, _ := strings.Cut(v[:at], "=")
		effect := v[at+1:]
		if err := oneOf(effect, string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)); err != nil {
			return nil, err
		}
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", v, problems[0])
		}
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}

func parseAmounts(vs []string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, v := range vs {
		name, amount, ok := strings.Cut(v, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not RESOURCE=AMOUNT", v)
		}
		if err := oneOf(name, "cpu", "memory", "ephemeral-storage", "pid"); err != nil {
			return nil, err
		}
		q, err := quantity.Parse(amount)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%q is not an amount such as 500m or 1Gi", amount)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func parseThresholds(vs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range vs {
		signal, amount, ok := strings.Cut(v, "<")
		if !ok {
			return nil, fmt.Errorf("%q is not SIGNAL<AMOUNT, for example memory.available<100Mi", v)
		}
		out[signal] = amount
	}
	return out, nil
}

func parseTimes(vs []string) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for _, v := range vs {
		signal, text, _ := strings.Cut(v, "=")
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is not SIGNAL=DURATION, for example memory.available=1m30s", v)
		}
		out[signal] = d
	}
	return out, nil
}

// Programs is the folder of the programs that belong to this one: a release unpacks them into the data folder, what was built
// by hand has them beside it.
func Programs(dataDir string) (string, error) {
	set, err := carry.Carried()
	if err != nil {
		return "", err
	}
	if set == nil {
		return OwnFolder()
	}
	return set.Unpack(filepath.Join(dataDir, "bin"))
}

// FindPrograms says where the programs are without unpacking them: in a folder, or, if it is a release, carried by this one.
func FindPrograms() (folder string, carried []string, err error) {
	set, err := carry.Carried()
	if err != nil {
		return "", nil, err
	}
	if set != nil {
		carried = set.Names()
	}
	folder, err = OwnFolder()
	return folder, carried, err
}

// OwnFolder is the folder of this program, where its companions are too.
func OwnFolder() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(self), nil
}

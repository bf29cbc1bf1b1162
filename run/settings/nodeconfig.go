package settings

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/node/shutdown"
	"proa.dev/run/datafolder"
)

// NodeConfig configures the node agent of a process. The names are those that kubelets use.
type NodeConfig struct {
	// Name is the name of the Node; empty for no agent.
	Name string
	IPs  []netip.Addr
	// Labels and Taints are given to the Node when it registers.
	Labels map[string]string
	Taints []corev1.Taint
	// Port is the port of the kubelet API.
	Port int
	// Runtime is the socket of a container runtime that another program runs; empty starts containerd.
	Runtime string
	// BinDir is the folder of containerd and its companions.
	BinDir string
	// CgroupDriver is cgroupfs or systemd; empty chooses the one that fits the machine.
	CgroupDriver string
	// RegistryDirs are folders that have a folder with a hosts.toml for each registry.
	RegistryDirs []string
	// ResolvConf is the file that names the node's own DNS servers; empty finds it.
	ResolvConf string
	// StaticPods is a folder of manifests of static Pods, and StaticURL the URL of one; empty for none.
	StaticPods, StaticURL        string
	KubeReserved, SystemReserved corev1.ResourceList
	EvictionHard, EvictionSoft   map[string]string
	EvictionGrace                map[string]time.Duration
	MaxPods, PodPids             int
	// Traffic configures Services and DNS.
	Traffic
	// ImageHigh and ImageLow are the percentages of disk usage at which the removal of unused images begins and ends.
	ImageHigh, ImageLow int
	ClusterDNS          []netip.Addr
	ClusterDomain       string
	UnsafeSysctls       []string
	ImageCredentials    string // the path of a CredentialProviderConfig
	ImageCredentialsBin string
	// ImageVerify says when Pods must have credentials for an image that is already on the node, and ImageAllowed which
	// images are exempt.
	ImageVerify  string
	ImageAllowed []string
	Align        Align
	// Pulls is how many images are pulled at a time, LogSize and LogFiles bound the log of a container; 0 for the
	// defaults.
	Pulls, LogFiles int
	LogSize         int64
	// SeccompDefault gives containers without a seccomp profile that of the runtime, RuntimeDefault, instead of none.
	// Privileged containers have none in any case. Swap lets burstable Pods use swap.
	SeccompDefault, Swap bool
	// AgentMemory bounds the memory of the agent, in bytes; 0 for the default, negative for no bound.
	AgentMemory int64
	// ShutdownGrace and ShutdownCritical, or ShutdownBy, are how long Pods have to end when the machine is shut down.
	ShutdownGrace, ShutdownCritical time.Duration
	ShutdownBy                      []shutdown.Period
}

// DefaultNodeName returns the host name of this machine as the name of a Node.
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

// nodeSettings returns the settings of the node agent.
func nodeSettings() []Setting {
	on := func(set func(*NodeConfig, string) error) func(*Config, []string) error {
		return setOne(func(c *Config, v string) error { return set(&c.Node, v) })
	}
	return slices.Concat([]Setting{
		{Name: "node", Help: "run a node agent in this process too, for the Node `NAME`; this needs root",
			Set: on(func(n *NodeConfig, v string) error { n.Name = v; return checkName(v) })},
		{Name: "node-ip", Help: "use `IP` as the address of the node; a second one of the other family makes it dual-stack", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.IPs, err = parseIPs(splitLists(vs)); return err }},
		{Name: "node-labels", Help: "label the Node `KEY=VALUE,...` when it registers", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Labels, err = parsePairs(splitLists(vs))
				return err
			}},
		{Name: "register-with-taints", Help: "taint the Node `KEY=VALUE:EFFECT,...` when it registers", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Taints, err = parseTaints(splitLists(vs))
				return err
			}},
		{Name: "node-port", Help: "serve the kubelet API (logs, exec, metrics) at port `N`; 0 takes a free one (default 10250)",
			Set: on(func(n *NodeConfig, v string) (err error) { n.Port, err = parsePort(v); return err })},
		{Name: "container-runtime-endpoint", Help: "use the container runtime at `SOCKET`, which another program runs, instead of starting containerd",
			Set: on(func(n *NodeConfig, v string) error { n.Runtime = v; return nil })},
		{Name: "bin-dir", Help: "find containerd and its companions in `DIR` (default the folder of this program)",
			Set: on(func(n *NodeConfig, v string) (err error) { n.BinDir, err = datafolder.Absolute(v); return err })},
		{Name: "cgroup-driver", Help: "use the cgroup `DRIVER` cgroupfs or systemd for Pods", Set: on(func(n *NodeConfig, v string) error {
			n.CgroupDriver = v
			return oneOf(v, "cgroupfs", "systemd")
		})},
		{Name: "registry-dir", Help: "find mirrors and certificates of registries in `DIR`/HOST/hosts.toml", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.RegistryDirs = splitLists(vs); return nil }},
		{Name: "pod-manifest-path", Help: "run static Pods from the manifests in `DIR`",
			Set: on(func(n *NodeConfig, v string) (err error) { n.StaticPods, err = datafolder.Absolute(v); return err })},
		{Name: "manifest-url", Help: "run static Pods from the manifest at `URL`",
			Set: on(func(n *NodeConfig, v string) error { n.StaticURL = v; return nil })},
		{Name: "agent-memory", Help: "let the agent, and the proxy for Ingresses and Gateways in its process, use `AMOUNT` of memory, such as 1Gi; off sets no limit (default a quarter of the machine's memory, from 512Mi to 4Gi)",
			Set: on(func(n *NodeConfig, v string) (err error) {
				if v == "off" {
					n.AgentMemory = -1
					return nil
				}
				n.AgentMemory, err = parseMemory(v)
				return err
			})},
		{Name: "kube-reserved", Help: "reserve `RESOURCE=AMOUNT,...` of the node for this process", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.KubeReserved, err = parseAmounts(splitLists(vs))
				return err
			}},
		{Name: "system-reserved", Help: "reserve `RESOURCE=AMOUNT,...` of the node for the rest of the machine", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.SystemReserved, err = parseAmounts(splitLists(vs))
				return err
			}},
		{Name: "eviction-hard", Help: "evict Pods at once when `SIGNAL<AMOUNT,...`, as in memory.available<100Mi", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionHard, err = parseThresholds(splitLists(vs))
				return err
			}},
		{Name: "eviction-soft", Help: "evict Pods when `SIGNAL<AMOUNT,...` holds for as long as eviction-soft-grace-period says", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionSoft, err = parseThresholds(splitLists(vs))
				return err
			}},
		{Name: "eviction-soft-grace-period", Help: "`SIGNAL=DURATION,...`: how long each signal of eviction-soft must hold", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.EvictionGrace, err = parseTimes(splitLists(vs))
				return err
			}},
		{Name: "max-pods", Help: "run at most `N` Pods on the node (default 110)",
			Set: on(func(n *NodeConfig, v string) (err error) { n.MaxPods, err = parseCount(v); return err })},
		{Name: "pod-max-pids", Help: "let a Pod have at most `N` processes",
			Set: on(func(n *NodeConfig, v string) (err error) { n.PodPids, err = strconv.Atoi(v); return err })},
		{Name: "image-gc-high-threshold", Help: "remove unused images when the disk is `N` percent full; 100 means never (default 85)", Set: on(func(n *NodeConfig, v string) (err error) {
			n.ImageHigh, err = parsePercent(v)
			n.ImageLow = min(n.ImageLow, max(0, n.ImageHigh-1))
			return err
		})},
		{Name: "image-gc-low-threshold", Help: "remove unused images until the disk is `N` percent full (default 80)",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ImageLow, err = parsePercent(v); return err })},
		{Name: "cluster-dns", Help: "DNS servers `IP,...` of Pods (default the tenth address of service-cidr)", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.ClusterDNS, err = parseIPs(splitLists(vs))
				return err
			}},
		{Name: "cluster-domain", Help: "DNS `DOMAIN` of the cluster (default cluster.local)",
			Set: on(func(n *NodeConfig, v string) error { n.ClusterDomain = v; return checkName(v) })},
		{Name: "resolv-conf", Help: "read the node's DNS servers, also for Pods that use them, from `FILE` (default /etc/resolv.conf, or the file of systemd-resolved)",
			Set: setFile(func(c *Config) *string { return &c.Node.ResolvConf })},
		{Name: "allowed-unsafe-sysctls", Help: "allow Pods to set the unsafe sysctls `NAME,...`, which may end with *", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.UnsafeSysctls = splitLists(vs); return nil }},
		{Name: "image-credential-provider-config", Help: "get registry passwords from the plugins in the CredentialProviderConfig `FILE`",
			Set: setFile(func(c *Config) *string { return &c.Node.ImageCredentials })},
		{Name: "image-credential-provider-bin-dir", Help: "find the credential provider plugins in `DIR`",
			Set: on(func(n *NodeConfig, v string) (err error) {
				n.ImageCredentialsBin, err = datafolder.Absolute(v)
				return err
			})},
	}, imageSettings(), alignSettings(), trafficSettings())
}

package settings

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/shutdown"
	near "proa.dev/node/topology"
)

// Align configures which processors and which memory Pods get for themselves.
type Align struct {
	// CPUs is the policy of the CPU manager, and Memory that of the memory manager.
	CPUs, Memory string
	Options      near.CPUOptions
	// Policy and WholePod are the policy and the scope of the topology manager.
	Policy   near.Policy
	WholePod bool
	// ReservedCPUs are processors for the system; without them, as many as are reserved. ReservedMemory is what each
	// NUMA node reserves; if it is nil, the first NUMA nodes provide it.
	ReservedCPUs   near.Set
	ReservedMemory map[int]map[corev1.ResourceName]int64
}

// alignSettings returns the settings of the CPU, memory and topology managers, and those for a shutdown of the machine.
func alignSettings() []Setting {
	on := func(set func(*NodeConfig, string) error) func(*Config, []string) error {
		return setOne(func(c *Config, v string) error { return set(&c.Node, v) })
	}
	return []Setting{
		{Name: "cpu-manager-policy", Help: "CPU manager `POLICY`: none, or static to give guaranteed Pods that request whole processors exclusive ones",
			Set: on(func(n *NodeConfig, v string) error { n.Align.CPUs = v; return oneOf(v, "none", "static") })},
		{Name: "cpu-manager-policy-options", Help: "options of the static CPU manager policy: `NAME=BOOL,...` of full-pcpus-only and strict-cpu-reservation", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Align.Options, err = parseCPUOptions(splitLists(vs))
				return err
			}},
		{Name: "reserved-cpus", Help: "reserve the processors `LIST`, such as 0-1,4, for the system, instead of reserved amounts of cpu",
			Set: on(func(n *NodeConfig, v string) (err error) {
				n.Align.ReservedCPUs, err = near.ParseSet(v)
				return err
			})},
		{Name: "memory-manager-policy", Help: "memory manager `POLICY`: None, or Static to give guaranteed Pods memory of certain NUMA nodes",
			Set: on(func(n *NodeConfig, v string) error { n.Align.Memory = v; return oneOf(v, "None", "Static") })},
		{Name: "reserved-memory", Help: "memory that each NUMA node reserves: `NODE:TYPE=AMOUNT,...`; by default the first NUMA nodes provide all of it", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Align.ReservedMemory, err = parseReserved(vs)
				return err
			}},
		{Name: "topology-manager-policy", Help: "topology manager `POLICY`: none, best-effort, restricted or single-numa-node",
			Set: on(func(n *NodeConfig, v string) (err error) { n.Align.Policy, err = near.ParsePolicy(v); return err })},
		{Name: "topology-manager-scope", Help: "topology manager `SCOPE`: container or pod", Set: on(func(n *NodeConfig, v string) error {
			n.Align.WholePod = v == "pod"
			return oneOf(v, "container", "pod")
		})},
		{Name: "shutdown-grace-period", Help: "delay a shutdown of the machine for `DURATION`, so that Pods can end; this needs systemd",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ShutdownGrace, err = parseWait(v); return err })},
		{Name: "shutdown-grace-period-critical-pods", Help: "keep `DURATION` of shutdown-grace-period for critical Pods",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ShutdownCritical, err = parseWait(v); return err })},
		{Name: "shutdown-grace-period-by-pod-priority", Help: "instead of the other two: `PRIORITY=SECONDS,...` for Pods of at least that priority", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.ShutdownBy, err = parsePeriods(splitLists(vs))
				return err
			}},
	}
}

// ShutdownPeriods returns how long Pods have to end when the machine is shut down.
func (n *NodeConfig) ShutdownPeriods() ([]shutdown.Period, error) {
	if len(n.ShutdownBy) == 0 {
		return shutdown.Periods(n.ShutdownGrace, n.ShutdownCritical)
	}
	if n.ShutdownGrace != 0 || n.ShutdownCritical != 0 {
		return nil, fmt.Errorf("say shutdown-grace-period-by-pod-priority, or shutdown-grace-period and shutdown-grace-period-critical-pods, not both")
	}
	return n.ShutdownBy, nil
}

// imageSettings returns the settings about images, logs and swap of containers.
func imageSettings() []Setting {
	return []Setting{
		{Name: "max-parallel-image-pulls", Help: "pull at most `N` images at a time",
			Set: setOne(func(c *Config, v string) (err error) { c.Node.Pulls, err = parseCount(v); return err })},
		{Name: "container-log-max-size", Help: "rotate the log file of a container at `AMOUNT`, such as 10Mi",
			Set: setOne(func(c *Config, v string) error {
				q, err := quantity.Parse(v)
				if err != nil || q.Value() <= 0 {
					return fmt.Errorf("%q is not an amount such as 10Mi", v)
				}
				c.Node.LogSize = q.Value()
				return nil
			})},
		{Name: "container-log-max-files", Help: "keep at most `N` log files of a container, at least 2",
			Set: setOne(func(c *Config, v string) (err error) {
				if c.Node.LogFiles, err = parseCount(v); err == nil && c.Node.LogFiles < 2 {
					err = fmt.Errorf("%q is not a number of at least 2", v)
				}
				return err
			})},
		{Name: "seccomp-default", Help: "`BOOL`: give containers without a seccomp profile the runtime's default profile, RuntimeDefault, which forbids system calls that few programs need (default true)",
			Set: setOne(func(c *Config, v string) (err error) {
				c.Node.SeccompDefault, err = strconv.ParseBool(v)
				return err
			})},
		{Name: "memory-swap-behavior", Help: "swap `BEHAVIOR`: NoSwap, or LimitedSwap to let burstable Pods use swap (cgroup v2)",
			Set: setOne(func(c *Config, v string) error {
				c.Node.Swap = v == "LimitedSwap"
				return oneOf(v, "NoSwap", "LimitedSwap")
			})},
		{Name: "image-pull-credentials-verification-policy", Help: "`POLICY` for when Pods must have credentials for an image that is already on the node: NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify",
			Set: setOne(func(c *Config, v string) error {
				c.Node.ImageVerify = v
				return oneOf(v, verifyPolicies()...)
			})},
		{Name: "preloaded-images-verification-allowlist", Help: "images `NAME,...`, without tags, that NeverVerifyAllowlistedImages exempts; a name may end with /*", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.ImageAllowed = slices.Clone(splitLists(vs)); return nil }},
	}
}

// verifyPolicies are the values of image-pull-credentials-verification-policy.
func verifyPolicies() []string {
	return []string{"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"}
}

package run

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/quantity"
	"proa.dev/node/shutdown"
	near "proa.dev/node/topology"
)

// Align is what Pods have of the machine for themselves.
type Align struct {
	// CPUs is "static" to give whole processors to containers of guaranteed Pods that ask for whole ones; Memory is "Static" for
	// memory of certain NUMA nodes.
	CPUs, Memory string
	Options      near.CPUOptions
	// Policy and WholePod are those of the topology manager.
	Policy   near.Policy
	WholePod bool
	// ReservedCPUs are for the system; none takes as many as are reserved. ReservedMemory is what each NUMA node keeps; nil takes
	// what is reserved from the first ones.
	ReservedCPUs   near.Set
	ReservedMemory map[int]map[corev1.ResourceName]int64
}

// alignSettings are those about processors, memory and devices that Pods have for themselves, and about the end of the machine.
func alignSettings() []Setting {
	on := func(set func(*NodeConfig, string) error) func(*Config, []string) error {
		return one(func(c *Config, v string) error { return set(&c.Node, v) })
	}
	return []Setting{
		{Name: "cpu-manager-policy", Help: "`POLICY` none, or static to give whole processors to guaranteed Pods that ask for them",
			Set: on(func(n *NodeConfig, v string) error { n.Align.CPUs = v; return oneOf(v, "none", "static") })},
		{Name: "cpu-manager-policy-options", Help: "`NAME=BOOL,...` of full-pcpus-only and strict-cpu-reservation", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Align.Options, err = parseCPUOptions(split(vs))
				return err
			}},
		{Name: "reserved-cpus", Help: "keep the processors `LIST`, such as 0-1,4, for the system; they count instead of reserved amounts of cpu",
			Set: on(func(n *NodeConfig, v string) (err error) {
				n.Align.ReservedCPUs, err = near.ParseSet(v)
				return err
			})},
		{Name: "memory-manager-policy", Help: "`POLICY` None, or Static to give guaranteed Pods memory of certain NUMA nodes",
			Set: on(func(n *NodeConfig, v string) error { n.Align.Memory = v; return oneOf(v, "None", "Static") })},
		{Name: "reserved-memory", Help: "of what is reserved each NUMA node keeps `NODE:TYPE=AMOUNT,...`; the first ones if not said", Many: true,
			Set: func(c *Config, vs []string) (err error) {
				c.Node.Align.ReservedMemory, err = parseReserved(vs)
				return err
			}},
		{Name: "topology-manager-policy", Help: "`POLICY` none, best-effort, restricted or single-numa-node",
			Set: on(func(n *NodeConfig, v string) (err error) { n.Align.Policy, err = near.ParsePolicy(v); return err })},
		{Name: "topology-manager-scope", Help: "`SCOPE` container or pod", Set: on(func(n *NodeConfig, v string) error {
			n.Align.WholePod = v == "pod"
			return oneOf(v, "container", "pod")
		})},
		{Name: "shutdown-grace-period", Help: "hold the machine up for `DURATION` when it goes down, so that Pods can end; systemd must run",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ShutdownGrace, err = parseWait(v); return err })},
		{Name: "shutdown-grace-period-critical-pods", Help: "of which `DURATION` is kept for critical Pods",
			Set: on(func(n *NodeConfig, v string) (err error) { n.ShutdownCritical, err = parseWait(v); return err })},
		{Name: "shutdown-grace-period-by-pod-priority", Help: "instead of both: `PRIORITY=SECONDS,...` for Pods of at least that priority", Many: true,
			Set: func(c *Config, vs []string) (err error) { c.Node.ShutdownBy, err = parsePeriods(split(vs)); return err }},
	}
}

// ShutdownPeriods are how long Pods have when the machine goes down.
func (n *NodeConfig) ShutdownPeriods() ([]shutdown.Period, error) {
	if len(n.ShutdownBy) == 0 {
		return shutdown.Periods(n.ShutdownGrace, n.ShutdownCritical)
	}
	if n.ShutdownGrace != 0 || n.ShutdownCritical != 0 {
		return nil, fmt.Errorf("say shutdown-grace-period-by-pod-priority, or shutdown-grace-period and shutdown-grace-period-critical-pods, not both")
	}
	return n.ShutdownBy, nil
}

func parseWait(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d != 0 && d < time.Second {
		return 0, fmt.Errorf("%q is not a time of at least a second, such as 30s", v)
	}
	return d, nil
}

func parsePeriods(vs []string) (out []shutdown.Period, err error) {
	for _, v := range vs {
		priority, seconds, _ := strings.Cut(v, "=")
		p, err := strconv.ParseInt(priority, 10, 32)
		s, err2 := strconv.ParseInt(seconds, 10, 32)
		if err != nil || err2 != nil || s < 0 {
			return nil, fmt.Errorf("%q is not PRIORITY=SECONDS", v)
		}
		out = append(out, shutdown.Period{Priority: int32(p), Seconds: s})
	}
	return out, nil
}

func parseCPUOptions(vs []string) (o near.CPUOptions, err error) {
	for _, v := range vs {
		name, text, _ := strings.Cut(v, "=")
		on, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("%q is not NAME=true or NAME=false", v)
		}
		switch name {
		case "full-pcpus-only":
			o.WholeCores = on
		case "strict-cpu-reservation":
			o.Strict = on
		default:
			return o, fmt.Errorf("%q is none of full-pcpus-only, strict-cpu-reservation", name)
		}
	}
	return o, nil
}

// parseReserved reads memory of NUMA nodes as kubelets take it: "0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=1Gi".
func parseReserved(vs []string) (map[int]map[corev1.ResourceName]int64, error) {
	out := map[int]map[corev1.ResourceName]int64{}
	for part := range strings.SplitSeq(strings.Join(vs, ";"), ";") {
		id, amounts, found := strings.Cut(part, ":")
		n, err := strconv.ParseUint(id, 10, 8)
		if err != nil || !found {
			return nil, fmt.Errorf("%q is not NODE:TYPE=AMOUNT,...", part)
		}
		if out[int(n)] != nil {
			return nil, fmt.Errorf("the NUMA node %d is named twice", n)
		}
		out[int(n)] = map[corev1.ResourceName]int64{}
		for pair := range strings.SplitSeq(amounts, ",") {
			name, text, _ := strings.Cut(pair, "=")
			q, err := quantity.Parse(text)
			if err != nil || q.Sign() <= 0 || name != string(corev1.ResourceMemory) && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
				return nil, fmt.Errorf("%q is not memory=AMOUNT or hugepages-SIZE=AMOUNT", pair)
			}
			out[int(n)][corev1.ResourceName(name)] = q.Value()
		}
	}
	return out, nil
}

// imageSettings are those about images and what containers get.
func imageSettings() []Setting {
	return []Setting{
		{Name: "max-parallel-image-pulls", Help: "pull at most `N` images at a time",
			Set: one(func(c *Config, v string) (err error) { c.Node.Pulls, err = parseCount(v); return err })},
		{Name: "container-log-max-size", Help: "begin a new log file of a container after `AMOUNT`, such as 10Mi",
			Set: one(func(c *Config, v string) error {
				q, err := quantity.Parse(v)
				if err != nil || q.Value() <= 0 {
					return fmt.Errorf("%q is not an amount such as 10Mi", v)
				}
				c.Node.LogSize = q.Value()
				return nil
			})},
		{Name: "container-log-max-files", Help: "keep at most `N` log files of a container, at least 2",
			Set: one(func(c *Config, v string) (err error) {
				if c.Node.LogFiles, err = parseCount(v); err == nil && c.Node.LogFiles < 2 {
					err = fmt.Errorf("%q is not a number of at least 2", v)
				}
				return err
			})},
		{Name: "seccomp-default", Help: "give containers that name no seccomp profile that of the runtime (RuntimeDefault), which refuses system calls that few programs need: `BOOL` true or false (true)",
			Set: one(func(c *Config, v string) (err error) { c.Node.SeccompDefault, err = strconv.ParseBool(v); return err })},
		{Name: "memory-swap-behavior", Help: "`BEHAVIOR` NoSwap, or LimitedSwap to let burstable Pods use swap (cgroup v2)",
			Set: one(func(c *Config, v string) error {
				c.Node.Swap = v == "LimitedSwap"
				return oneOf(v, "NoSwap", "LimitedSwap")
			})},
		{Name: "image-pull-credentials-verification-policy", Help: "when Pods must show a password for an image that is here: `POLICY` NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify",
			Set: one(func(c *Config, v string) error {
				c.Node.ImageVerify = v
				return oneOf(v, verifyPolicies()...)
			})},
		{Name: "preloaded-images-verification-allowlist", Help: "images that NeverVerifyAllowlistedImages is about: `NAME,...` without tags, which may end with /*", Many: true,
			Set: func(c *Config, vs []string) error { c.Node.ImageAllowed = slices.Clone(split(vs)); return nil }},
	}
}

func verifyPolicies() []string {
	return []string{"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"}
}

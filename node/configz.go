package node

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/node/cgroup"
	"proa.dev/node/image"
	"proa.dev/node/logs"
	"proa.dev/node/shutdown"
	"proa.dev/node/topology"
)

// kubeletConfiguration returns the configuration of the agent as a KubeletConfiguration, which people and tools read at /configz.
// Fields without a meaning here are left out.
func (a *Agent) kubeletConfiguration() any {
	swap := "NoSwap"
	if a.Swap {
		swap = "LimitedSwap"
	}
	out := map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"enableServer": true, "address": "0.0.0.0", "port": a.Port, "rotateCertificates": true, "serverTLSBootstrap": true,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true, "cacheTTL": "2m0s"},
			"x509": map[string]any{},
		},
		"authorization": map[string]any{"mode": "Webhook",
			"webhook": map[string]any{"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"}},
		"syncFrequency": "0s", "nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m0s", "nodeLeaseDurationSeconds": 40,
		"clusterDomain": a.DNS.Domain, "clusterDNS": stringsOf(a.DNS.Servers), "resolvConf": a.DNS.ResolvConf,
		"maxPods": cmp.Or(a.MaxPods, 110), "podPidsLimit": cmp.Or(a.PodPids, -1), "nodeStatusMaxImages": cmp.Or(a.MaxImages, 50),
		"cgroupRoot": cgroup.RootFor(a.Dir), "cgroupDriver": string(cmp.Or(a.Driver, cgroup.Cgroupfs)), "cgroupsPerQOS": true,
		"enforceNodeAllocatable": []string{"pods"}, "failCgroupV1": false, "failSwapOn": false,
		"memorySwap":  map[string]any{"swapBehavior": swap},
		"cpuCFSQuota": true, "cpuCFSQuotaPeriod": "100ms", "seccompDefault": a.SeccompDefault,
		"serializeImagePulls": false, "maxParallelImagePulls": cmp.Or(a.ParallelPulls, parallelPulls),
		"imagePullCredentialsVerificationPolicy":    string(cmp.Or(a.Verify, image.NeverVerifyPreloadedImages)),
		"containerLogMaxSize":                       quantity(cmp.Or(a.LogSize, logs.DefaultMaxSize)),
		"containerLogMaxFiles":                      cmp.Or(a.LogFiles, logs.DefaultMaxFiles),
		"configMapAndSecretChangeDetectionStrategy": "Watch", "enableControllerAttachDetach": true, "registerNode": true,
		"evictionHard": a.Eviction.Hard, "evictionPressureTransitionPeriod": "5m0s", "mergeDefaultEvictionSettings": false,
		"containerRuntimeEndpoint": "unix://" + a.socket(), "podLogsDir": a.podLogs(), "localStorageCapacityIsolation": true,
		"enableDebuggingHandlers": true, "enableProfilingHandler": false, "enableDebugFlagsHandler": false, "enableSystemLogHandler": false,
	}
	keep := imageGCSettings(a.Config)
	out["imageGCHighThresholdPercent"], out["imageGCLowThresholdPercent"] = keep.High, keep.Low
	out["imageMinimumGCAge"] = keep.Min.String()
	for name, value := range map[string]string{"staticPodPath": a.StaticPods, "staticPodURL": a.StaticURL, "providerID": a.ProviderID,
		"reservedSystemCPUs": a.ResourceManagers.ReservedCPUs.String()} {
		if value != "" {
			out[name] = value
		}
	}
	for name, list := range map[string]corev1.ResourceList{"systemReserved": a.SystemReserved, "kubeReserved": a.KubeReserved} {
		if len(list) > 0 {
			out[name] = amounts(list)
		}
	}
	for name, m := range map[string]map[string]string{"evictionSoft": a.Eviction.Soft, "evictionSoftGracePeriod": a.Eviction.SoftGrace} {
		if len(m) > 0 {
			out[name] = m
		}
	}
	for name, list := range map[string][]string{"allowedUnsafeSysctls": a.UnsafeSysctls,
		"preloadedImagesVerificationAllowlist": a.AllowedImages} {
		if len(list) > 0 {
			out[name] = list
		}
	}
	if len(a.Taints) > 0 {
		out["registerWithTaints"] = a.Taints
	}
	maps.Copy(out, a.alignSettings())
	maps.Copy(out, a.shutdownSettings())
	return out
}

func (a *Agent) alignSettings() map[string]any {
	c := &a.ResourceManagers
	out := map[string]any{
		"cpuManagerPolicy": cmp.Or(c.CPUs, "none"), "cpuManagerReconcilePeriod": cpuReconcilePeriod.String(),
		"memoryManagerPolicy":   cmp.Or(c.Memory, "None"),
		"topologyManagerPolicy": cmp.Or(c.Policy, topology.None), "topologyManagerScope": "container",
	}
	if c.WholePod {
		out["topologyManagerScope"] = "pod"
	}
	options := map[string]string{}
	for name, on := range map[string]bool{"full-pcpus-only": c.Options.WholeCores, "strict-cpu-reservation": c.Options.Strict} {
		if on {
			options[name] = strconv.FormatBool(on)
		}
	}
	if len(options) > 0 {
		out["cpuManagerPolicyOptions"] = options
	}
	var reserved []map[string]any
	for _, id := range slices.Sorted(maps.Keys(c.ReservedMemory)) {
		limits := map[string]string{}
		for name, n := range c.ReservedMemory[id] {
			limits[string(name)] = quantity(n)
		}
		reserved = append(reserved, map[string]any{"numaNode": id, "limits": limits})
	}
	if len(reserved) > 0 {
		out["reservedMemory"] = reserved
	}
	return out
}

func (a *Agent) shutdownSettings() map[string]any {
	var sum, last int64
	var all []map[string]any
	for _, p := range a.shutdown.Periods {
		sum, last = sum+p.Seconds, p.Seconds
		all = append(all, map[string]any{"priority": p.Priority, "shutdownGracePeriodSeconds": p.Seconds})
	}
	if shutdown.IsTwoPeriods(a.shutdown.Periods) {
		return map[string]any{"shutdownGracePeriod": seconds(sum), "shutdownGracePeriodCriticalPods": seconds(last)}
	}
	return map[string]any{"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s", "shutdownGracePeriodByPodPriority": all}
}

func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }

func quantity(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func amounts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

func stringsOf[T interface{ String() string }](all []T) []string {
	out := make([]string, 0, len(all))
	for _, x := range all {
		out = append(out, x.String())
	}
	return out
}

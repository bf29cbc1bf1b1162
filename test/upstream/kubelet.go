package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"proa.dev/test/ports"
)

// Kubelet configures a kubelet that is started for a system.
type Kubelet struct {
	// Runtime is the socket of its container runtime, Groups the path of the group that all its groups are in.
	Runtime, Groups string
	MaxPods         int
}

// StartKubelet starts upstream's kubelet as the agent of Node, and as a member of the system. Its client limits are
// never reached, and a full disk is nothing to it.
func (s *System) StartKubelet(ctx context.Context, k Kubelet) (pid int, err error) {
	bins, err := Build(ctx, "kubelet")
	if err != nil {
		return 0, err
	}
	free, err := ports.Reserve(1)
	if err != nil {
		return 0, err
	}
	file := filepath.Join(s.dir, "kubelet.json")
	text, err := json.MarshalIndent(kubeletConfig(s.dir, free[0], k), "", "  ")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return 0, err
	}
	s.after = append(s.after, restoreHost())
	err = s.run(bins["kubelet"], "--config="+file, "--kubeconfig="+filepath.Join(s.dir, nodeKubeconfig), "--hostname-override="+Node,
		"--root-dir="+filepath.Join(s.dir, "kubelet"), "--cert-dir="+filepath.Join(s.dir, "kubelet-pki"))
	if err != nil {
		return 0, err
	}
	return s.procs[len(s.procs)-1].cmd.Process.Pid, nil
}

// kubeletConfig returns a KubeletConfiguration. Fields that are not set have upstream's default.
func kubeletConfig(dir string, port int, k Kubelet) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + k.Runtime,
		"cgroupDriver":             "cgroupfs", "cgroupRoot": k.Groups, "failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": filepath.Join(dir, "ca.crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"address":       "127.0.0.1", "port": port, "readOnlyPort": 0, "healthzPort": 0,
		"clusterDomain": "cluster.local", "clusterDNS": []string{"10.96.0.10"},
		"maxPods": max(k.MaxPods, 1), "kubeAPIQPS": 2000, "kubeAPIBurst": 4000, "eventRecordQPS": 0,
		"registryPullQPS": 0, "serializeImagePulls": false, "imageGCHighThresholdPercent": 100,
		"evictionHard":           map[string]string{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"makeIPTablesUtilChains": false, // they would stay
		"podLogsDir":             filepath.Join(dir, "podlogs"),
		"volumePluginDir":        filepath.Join(dir, "volume-plugins"),
	}
}

// restoreHost remembers what a kubelet changes of a host outside of its folders, and returns what puts it back: settings of
// the kernel, and a folder for the sockets of devices.
func restoreHost() func() {
	before := map[string][]byte{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		file := filepath.Join("/proc/sys", name)
		if data, err := os.ReadFile(file); err == nil {
			before[file] = data
		}
	}
	const folder = "/var/lib/kubelet"
	_, err := os.Stat(folder)
	fresh := errors.Is(err, os.ErrNotExist)
	return func() {
		for file, data := range before {
			_ = os.WriteFile(file, data, 0o644)
		}
		if fresh {
			// Folders that other programs have written to are kept.
			for _, name := range []string{"device-plugins/kubelet.sock", "device-plugins/kubelet_internal_checkpoint",
				"device-plugins/DEPRECATION", "device-plugins", ""} {
				_ = os.Remove(filepath.Join(folder, name))
			}
		}
	}
}

package stats

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/fact"
	"proa.dev/node/pod"
	"proa.dev/node/podstate"
)

// Agent returns the metrics of the agent itself: its process, and the Pods and containers that run.
func (s *Stats) Agent() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&exporter{workloadMetrics(), s.workload})
	return reg
}

// workloadMetrics returns the metrics that count Pods and containers.
func workloadMetrics() map[string]*prometheus.Desc {
	return map[string]*prometheus.Desc{
		"name":    describe("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.", "node"),
		"running": describe("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox"),
		"containers": describe("kubelet_running_containers", "[ALPHA] Number of containers currently running",
			"container_state"),
		"desired": describe("kubelet_desired_pods", "[ALPHA] The number of pods the kubelet is being instructed to run. "+
			"static is true if the pod is not from the apiserver.", "static"),
		"active": describe("kubelet_active_pods", "[ALPHA] The number of pods the kubelet considers active and which are being considered "+
			"when admitting new pods. static is true if the pod is not from the apiserver.", "static"),
		"working": describe("kubelet_working_pods", "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, "+
			"whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been "+
			"removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
			"lifecycle", "config", "static"),
	}
}

// working are the labels of kubelet_working_pods.
type working struct{ lifecycle, config, static string }

// workload counts Pods and containers.
func (s *Stats) workload(x *export) {
	running, states := 0, map[string]int{"running": 0}
	desired, active, work := map[string]int{"": 0, "true": 0}, map[string]int{"": 0, "true": 0}, map[working]int{}
	for _, l := range s.Pods.Pods() {
		if l.Pod != nil {
			w := workingOf(l)
			work[w]++
			if w.config == "desired" {
				desired[w.static]++
				if w.lifecycle != "terminated" {
					active[w.static]++
				}
			}
		}
		if l.Facts == nil {
			continue
		}
		if isRunning(l.Facts) {
			running++
		}
		for i := range l.Facts.Containers {
			states[stateOf(l.Facts.Containers[i].State)]++
		}
	}
	x.count("name", 1, s.Node)
	x.count("running", running)
	for state, n := range states {
		x.count("containers", n, state)
	}
	for static, n := range desired {
		x.count("desired", n, static)
		x.count("active", active[static], static)
	}
	for w, n := range work {
		x.count("working", n, w.lifecycle, w.config, w.static)
	}
}

// count writes a number of things.
func (x *export) count(name string, n int, labels ...string) {
	x.put(prometheus.GaugeValue, name, metav1.Time{}, float64(n), labels)
}

// workingOf returns the labels of a Pod: whether it runs, terminates or has terminated, and where it comes from.
func workingOf(l pod.Local) working {
	w := working{lifecycle: "sync", config: "desired"}
	if fact.Static(l.Pod) {
		w.static = "true"
	}
	if l.Removed {
		w.config = "orphan"
		if len(l.Pod.Spec.Containers) == 0 { // only the runtime knows it
			w.config, w.static = "runtime_only", "unknown"
		}
	}
	if l.Removed || l.Ended || l.Pod.DeletionTimestamp != nil || podstate.IsTerminal(l.Pod.Status.Phase) {
		w.lifecycle = "terminated"
		if l.Facts == nil || podstate.HasActiveContainer(l.Facts) {
			w.lifecycle = "terminating"
		}
	}
	return w
}

// claimMetrics returns the metrics of the volumes of claims.
func claimMetrics() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for name, help := range map[string]string{
		"capacity_bytes": "Capacity in bytes of the volume", "available_bytes": "Number of available bytes in the volume",
		"used_bytes": "Number of used bytes in the volume", "inodes": "Maximum number of inodes in the volume",
		"inodes_free": "Number of free inodes in the volume", "inodes_used": "Number of used inodes in the volume",
	} {
		out[name] = describe("kubelet_volume_stats_"+name, "[ALPHA] "+help, "namespace", "persistentvolumeclaim")
	}
	return out
}

// claims writes the usage of the volumes of claims, each claim once.
func (s *Stats) claims(ctx context.Context, x *export) {
	seen := map[summary.PVCReference]bool{}
	for _, l := range s.Pods.Pods() {
		if l.Pod == nil || l.Facts == nil || !isRunning(l.Facts) {
			continue
		}
		for i := range l.Pod.Spec.Volumes {
			v := &l.Pod.Spec.Volumes[i]
			if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
				continue
			}
			if st, _, found := s.volume(ctx, ctx, l.Pod, v, metav1.Now()); found && !seen[*st.PVCRef] {
				seen[*st.PVCRef] = true
				x.claim(&st)
			}
		}
	}
}

// claim writes the usage of the volume of a claim.
func (x *export) claim(st *summary.VolumeStats) {
	for name, value := range map[string]*uint64{
		"capacity_bytes": st.CapacityBytes, "available_bytes": st.AvailableBytes, "used_bytes": st.UsedBytes,
		"inodes": st.Inodes, "inodes_free": st.InodesFree, "inodes_used": st.InodesUsed,
	} {
		x.bytes(name, metav1.Time{}, value, st.PVCRef.Namespace, st.PVCRef.Name)
	}
}

func stateOf(s fact.State) string {
	switch s {
	case fact.Created:
		return "created"
	case fact.Running:
		return "running"
	case fact.Exited:
		return "exited"
	case fact.Unknown:
	}
	return "unknown"
}

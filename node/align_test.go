package node_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node"
	"proa.dev/node/shutdown"
	"proa.dev/node/topology"
)

// cgroupFile reads a file of the cgroup of a Pod's first container.
func (r *testNode) cgroupFile(p *corev1.Pod, hierarchy, file string) string {
	r.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, hierarchy)); err == nil {
		root = filepath.Join(root, hierarchy)
	}
	var text []byte
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == id { // cgroups may disappear during the walk
			if text, err = os.ReadFile(filepath.Join(path, file)); err != nil {
				r.Fatal(err)
			}
			return fs.SkipAll
		}
		return nil
	})
	return strings.TrimSpace(string(text))
}

// awaitCPUs waits until the container of a Pod has a CPU set.
func (r *testNode) awaitCPUs(name, cpus string) {
	r.Helper()
	p := r.awaitPod(name, "runs", running)
	r.eventually(name+" has the CPUs "+cpus, func() bool { return r.cgroupFile(p, "cpuset", "cpuset.cpus") == cpus })
}

// TestExclusiveCPUs gives a Pod exclusive CPUs: other containers are moved to the rest, and it keeps them after a restart of the agent.
func TestExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skipf("this test needs two processors, and there are %d", runtime.NumCPU())
	}
	r := startTestNode(t, func(c *node.Config) {
		c.ResourceManagers = node.ResourceManagers{CPUs: "static", Memory: "Static", Policy: topology.Restricted}
		c.SystemReserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	})
	r.runPod("shared", `resources: {requests: {cpu: 100m}}`)
	r.awaitCPUs("shared", "0-1")
	r.runPod("exclusive", `resources: {limits: {cpu: 1, memory: 32Mi}}`)
	r.awaitCPUs("exclusive", "1")
	r.awaitCPUs("shared", "0")
	exclusive := r.getPod("exclusive")
	if got := r.cgroupFile(exclusive, "cpu", "cpu.cfs_quota_us"); got != "-1" && got != "" {
		t.Errorf("a Pod with an exclusive CPU has the quota %s", got)
	}
	if got := r.cgroupFile(exclusive, "cpuset", "cpuset.mems"); got != "0" {
		t.Errorf("its memory is on the NUMA nodes %q", got)
	}
	// Its exclusive CPUs cannot be resized while it runs.
	r.eventually("the resize is accepted", func() bool { // the agent writes the status meanwhile
		other := r.getPod("exclusive")
		for _, list := range []corev1.ResourceList{other.Spec.Containers[0].Resources.Limits, other.Spec.Containers[0].Resources.Requests} {
			list[corev1.ResourceCPU] = resource.MustParse("1500m")
		}
		_, err := r.Update(t.Context(), gr.Pods, other, "resize")
		return err == nil
	})
	r.awaitPod("exclusive", "cannot be resized", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible && c.Message == `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
		})
	})
	r.runPod("more", `resources: {limits: {cpu: 1, memory: 32Mi}}`)
	r.awaitRejection("more", "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality")

	r.restartAgent()
	r.awaitCPUs("exclusive", "1")
	r.runPod("later", `resources: {requests: {cpu: 100m}}`)
	r.awaitCPUs("later", "0")
	r.removePod("exclusive")
	r.awaitCPUs("shared", "0-1")
	r.awaitCPUs("later", "0-1")

	// The policy can be changed back, and CPUs that do not exist cannot be reserved.
	r.stopAgent()
	r.config.ResourceManagers.CPUs = "none"
	r.startAgent()
	r.stopAgent()
	r.config.ResourceManagers.CPUs = "static"
	r.config.ResourceManagers.ReservedCPUs = topology.SetOf(0, 1, 2)
	if _, err := node.Start(t.Context(), r.config); err == nil ||
		!strings.Contains(err.Error(), "the reserved processors 0-2 are not all there: there are 0-1") {
		t.Errorf("got %v", err)
	}
	r.config.ResourceManagers.ReservedCPUs = nil
	r.startAgent()
}

// TestShutdown terminates the Pods of a machine that shuts down, and admits no more.
func TestShutdown(t *testing.T) {
	r := startTestNode(t, func(c *node.Config) {
		c.Shutdown = []shutdown.Period{{Priority: 0, Seconds: 10}, {Priority: 2000000000, Seconds: 5}}
	})
	r.runPod("web", "")
	r.awaitPod("web", "runs", running)
	r.agent.BeginShutdown(t.Context())
	p := r.awaitPod("web", "has ended", failed)
	if p.Status.Reason != "Terminated" || p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("it ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
	r.eventually("the Node is not ready", func() bool { return !ready(r.agent.Node().Status.Conditions) })
	for _, c := range r.agent.Node().Status.Conditions {
		if c.Type == corev1.NodeReady && c.Message != "node is shutting down" {
			t.Errorf("the condition has the message %q", c.Message)
		}
	}
	r.runPod("late", "")
	r.awaitRejection("late", "NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.")
}

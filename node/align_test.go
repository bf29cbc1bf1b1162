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

// group reads a file of a container's cgroup.
func (r *room) group(p *corev1.Pod, hierarchy, file string) string {
	r.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, hierarchy)); err == nil {
		root = filepath.Join(root, hierarchy)
	}
	var text []byte
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != id {
			return nil //nolint:nilerr // groups come and go
		}
		if text, err = os.ReadFile(filepath.Join(path, file)); err != nil {
			r.Fatal(err)
		}
		return fs.SkipAll
	})
	return strings.TrimSpace(string(text))
}

// on waits until a container has a CPU set.
func (r *room) on(name, cpus string) {
	r.Helper()
	p := r.await(name, "runs", running)
	r.until(name+" is on the processors "+cpus, func() bool { return r.group(p, "cpuset", "cpuset.cpus") == cpus })
}

// TestProcessors gives exclusive CPUs to a Pod: other containers are moved away, and it keeps them across a restart of the agent.
func TestProcessors(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skipf("this test counts two processors, and there are %d", runtime.NumCPU())
	}
	r := newRoom(t, func(c *node.Config) {
		c.ResourceManagers = node.ResourceManagers{CPUs: "static", Memory: "Static", Policy: topology.Restricted}
		c.SystemReserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	})
	r.run("shared", `resources: {requests: {cpu: 100m}}`)
	r.on("shared", "0-1")
	r.run("alone", `resources: {limits: {cpu: 1, memory: 32Mi}}`)
	r.on("alone", "1")
	r.on("shared", "0")
	alone := r.pod("alone")
	if got := r.group(alone, "cpu", "cpu.cfs_quota_us"); got != "-1" && got != "" {
		t.Errorf("who has a processor alone is slowed down to %s", got)
	}
	if got := r.group(alone, "cpuset", "cpuset.mems"); got != "0" {
		t.Errorf("its memory is of the nodes %q", got)
	}
	// It cannot have more of what it has alone while it runs.
	other := r.pod("alone")
	for _, list := range []corev1.ResourceList{other.Spec.Containers[0].Resources.Limits, other.Spec.Containers[0].Resources.Requests} {
		list[corev1.ResourceCPU] = resource.MustParse("1500m")
	}
	if _, err := r.Update(t.Context(), gr.Pods, other, "resize"); err != nil {
		t.Fatal(err)
	}
	r.await("alone", "cannot be resized", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible && c.Message == `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
		})
	})
	r.run("more", `resources: {limits: {cpu: 1, memory: 32Mi}}`)
	r.rejected("more", "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality")

	r.restart()
	r.on("alone", "1")
	r.run("later", `resources: {requests: {cpu: 100m}}`)
	r.on("later", "0")
	r.remove("alone")
	r.on("shared", "0-1")
	r.on("later", "0-1")

	// The policy can be taken back, and processors that are not there cannot be reserved.
	r.leave()
	r.config.ResourceManagers.CPUs = "none"
	r.start()
	r.leave()
	r.config.ResourceManagers.CPUs = "static"
	r.config.ResourceManagers.ReservedCPUs = topology.SetOf(0, 1, 2)
	if _, err := node.Start(t.Context(), r.config); err == nil ||
		!strings.Contains(err.Error(), "the reserved processors 0-2 are not all there: there are 0-1") {
		t.Errorf("got %v", err)
	}
	r.config.ResourceManagers.ReservedCPUs = nil
	r.start()
}

// TestShutdown terminates the Pods of a machine that shuts down, and admits no more.
func TestShutdown(t *testing.T) {
	r := newRoom(t, func(c *node.Config) {
		c.Shutdown = []shutdown.Period{{Priority: 0, Seconds: 10}, {Priority: 2000000000, Seconds: 5}}
	})
	r.run("web", "")
	r.await("web", "runs", running)
	r.agent.GoDown(t.Context())
	p := r.await("web", "has ended", failed)
	if p.Status.Reason != "Terminated" || p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("it ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
	r.until("the Node is not ready", func() bool { return !ready(r.agent.Node().Status.Conditions) })
	for _, c := range r.agent.Node().Status.Conditions {
		if c.Type == corev1.NodeReady && c.Message != "node is shutting down" {
			t.Errorf("the Node says %q", c.Message)
		}
	}
	r.run("late", "")
	r.rejected("late", "NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.")
}

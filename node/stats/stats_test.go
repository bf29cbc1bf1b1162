package stats

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"golang.org/x/sys/unix"

	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// fakeCgroups has the usage of cgroups, by their names.
type fakeCgroups map[string]cgroup.Usage

func (c fakeCgroups) Stats(group string) (cgroup.Usage, error) {
	u, found := c[group]
	if !found {
		return u, errors.New("no group " + group)
	}
	return u, nil
}

func (c fakeCgroups) Parent(p *corev1.Pod) string { return "/pods/" + string(p.UID) }

type fakePods []pod.Local

func (l fakePods) Pods() []pod.Local { return l }

type fakeRuntime struct{ failing bool }

func (l fakeRuntime) Layers(context.Context) (map[string]Size, error) {
	if l.failing {
		return nil, errors.New("no connection")
	}
	return map[string]Size{"id": {7000, 7}}, nil
}

func (fakeRuntime) Filesystems(context.Context) (images, containers Disk, err error) {
	return Disk{"/", Size{100, 10}}, Disk{"/", Size{200, 20}}, nil
}

func (fakeRuntime) NetworkNamespace(context.Context, string) (string, error) {
	return "", errors.New("no network")
}

func valueOf(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

func newStats(t *testing.T) (*Stats, fakeCgroups) {
	t.Helper()
	at := time.Unix(1000, 0)
	c := fakeCgroups{
		"/pods/u": {Time: at, CPU: cgroup.CPUUsage{Total: 3e9}, Memory: cgroup.MemoryUsage{Usage: 300, WorkingSet: 200, Limit: 1000}},
		"/pods/u/cri-containerd-id.scope": {
			Time: at, CPU: cgroup.CPUUsage{Total: 2e9, Periods: 7, Throttled: 3, ThrottledTime: 15e8},
			Memory:   cgroup.MemoryUsage{Usage: 250, WorkingSet: 150, RSS: 50, Swap: 5, Cache: 40},
			Disks:    map[string]cgroup.IOUsage{"8:0": {ReadBytes: 1, WriteBytes: 2, Reads: 3, Writes: 4}, "7:9": {Writes: 4}},
			Pressure: map[string]cgroup.Pressure{"cpu": {Some: cgroup.Stall{Avg10: 1.5}}},
		},
	}
	dir := t.TempDir()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "gone", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		{Name: "claim",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
	}}}
	log := filepath.Join(dir, "logs", "c", "0.log")
	for path, size := range map[string]int{
		log: 5000, filepath.Join(dir, "pods/u/volumes/kubernetes.io~empty-dir/scratch/file"): 9000,
		filepath.Join(dir, "pods/u/volumes/kubernetes.io~local/pv/x"): 1,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &fact.Pod{Sandboxes: []fact.Sandbox{{ID: "box", Ready: true, Network: true, Created: time.Unix(900, 0)}},
		Containers: []fact.Container{{ID: "id", Name: "c", State: fact.Running, Started: time.Unix(901, 0), LogPath: log, Image: "i"},
			{ID: "old", Name: "c", State: fact.Exited}}}
	s := New(Config{Node: "n", Pods: fakePods{{Pod: p, Facts: f}, {Pod: &corev1.Pod{}}}, Groups: c, Counters: c, Runtime: fakeRuntime{},
		Dir: dir, VolumeOf: func(context.Context, string, string) string { return "pv" }})
	s.proc, s.devices.sys = "testdata/proc", t.TempDir()
	if err := os.Symlink("../../devices/pci/block/sda", filepath.Join(s.devices.sys, "8:0")); err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestSummary(t *testing.T) {
	s, c := newStats(t)
	sum, err := s.Summary(t.Context(), Whole)
	if err != nil {
		t.Fatal(err)
	}
	n := sum.Node
	if got := valueOf(n.CPU.UsageCoreNanoSeconds); got != 21*uint64(tick) || n.StartTime.Unix() != 500 {
		t.Errorf("the node: %d since %v", got, n.StartTime)
	}
	if got := [3]uint64{valueOf(n.Memory.UsageBytes), valueOf(n.Memory.WorkingSetBytes),
		valueOf(n.Memory.AvailableBytes)}; got != [3]uint64{600 << 10, 500 << 10, 500 << 10} {
		t.Errorf("the memory of the node: %v", got)
	}
	if n.Network.Name != "eth0" || valueOf(n.Network.RxBytes) != 100 || valueOf(n.Network.TxErrors) != 3 || len(n.Network.Interfaces) != 2 {
		t.Errorf("the network of the node: %+v", n.Network)
	}
	if *n.Rlimit.MaxPID != 32768 || *n.Rlimit.NumOfRunningProcesses != 80 || valueOf(n.Runtime.ImageFs.UsedBytes) != 100 ||
		valueOf(n.Runtime.ContainerFs.InodesUsed) != 20 {
		t.Errorf("the rest of the node: %+v %+v", n.Rlimit, n.Runtime)
	}
	if len(sum.Pods) != 1 || len(sum.Pods[0].Containers) != 1 {
		t.Fatalf("Pods: %+v", sum.Pods)
	}
	p := sum.Pods[0]
	cont := p.Containers[0]
	if valueOf(p.CPU.UsageCoreNanoSeconds) != 3e9 || valueOf(p.Memory.AvailableBytes) != 800 || valueOf(cont.Memory.RSSBytes) != 50 ||
		cont.Memory.AvailableBytes != nil || cont.CPU.PSI.Some.Avg10 != 1.5 {
		t.Errorf("the Pod: %+v %+v", p, cont)
	}
	if cont.CPU.UsageNanoCores != nil {
		t.Error("there is a CPU rate after one measurement")
	}
	if valueOf(cont.Rootfs.UsedBytes) != 7000 || valueOf(cont.Logs.UsedBytes) < 5000 {
		t.Errorf("the disks of the container: %+v %+v", cont.Rootfs, cont.Logs)
	}
	names := map[string]summary.VolumeStats{}
	for _, v := range p.VolumeStats {
		names[v.Name] = v
	}
	if len(names) != 2 || valueOf(names["scratch"].UsedBytes) < 9000 || names["claim"].PVCRef == nil ||
		valueOf(names["claim"].CapacityBytes) == 0 {
		t.Errorf("volumes: %+v", p.VolumeStats)
	}
	if got := valueOf(p.EphemeralStorage.UsedBytes); got < 7000+5000+9000 || got > 60000 {
		t.Errorf("storage: %d", got)
	}
	u := c["/pods/u/cri-containerd-id.scope"]
	u.CPU.Total, u.Time = u.CPU.Total+1e9, u.Time.Add(2*time.Second)
	c["/pods/u/cri-containerd-id.scope"] = u
	sum, err = s.Summary(t.Context(), Quick)
	if err != nil {
		t.Fatal(err)
	}
	cont = sum.Pods[0].Containers[0]
	if valueOf(cont.CPU.UsageNanoCores) != 5e8 || cont.Rootfs != nil {
		t.Errorf("the second measurement: %+v", cont)
	}
}

func TestSummaryWithoutTheRuntime(t *testing.T) {
	s, _ := newStats(t)
	s.Runtime = fakeRuntime{failing: true}
	if _, err := s.Summary(t.Context(), Whole); err == nil {
		t.Error("the whole summary succeeds without the runtime")
	}
	if _, err := s.Summary(t.Context(), Quick); err != nil {
		t.Error(err)
	}
}

func TestHandlers(t *testing.T) {
	s, _ := newStats(t)
	all := s.Handlers(nil, nil)
	get := func(path string) string {
		w := httptest.NewRecorder()
		p, _, _ := strings.Cut(path, "?")
		all[p].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w.Body.String()
	}
	text := get("/metrics/resource")
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} 2 1000000`,
		`container_memory_working_set_bytes{container="c",namespace="ns",pod="p"} 150 1000000`,
		`container_start_time_seconds{container="c",namespace="ns",pod="p"} 901`,
		`pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 3 1000000`,
		`pod_memory_working_set_bytes{namespace="ns",pod="p"} 200 1000000`,
		"node_cpu_usage_seconds_total 0.21 ", "node_memory_working_set_bytes 512000 ", "resource_scrape_error 0",
		"# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	text = get("/metrics/cadvisor")
	labels := `id="/pods/u/id",image="i",name="id",namespace="ns",pod="p"`
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="c",cpu="total",` + labels + `} 2 1000000`,
		`container_memory_cache{container="c",` + labels + `} 40 1000000`,
		`container_cpu_cfs_periods_total{container="c",` + labels + `} 7 1000000`,
		`container_cpu_cfs_throttled_periods_total{container="c",` + labels + `} 3 1000000`,
		`container_cpu_cfs_throttled_seconds_total{container="c",` + labels + `} 1.5 1000000`,
		`container_fs_reads_bytes_total{container="c",device="/dev/sda",` + labels + `} 1 1000000`,
		`container_fs_writes_bytes_total{container="c",device="/dev/sda",` + labels + `} 2 1000000`,
		`container_fs_reads_total{container="c",device="/dev/sda",` + labels + `} 3 1000000`,
		`container_fs_writes_total{container="c",device="7:9",` + labels + `} 4 1000000`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	text = get("/metrics")
	for _, want := range []string{
		"kubelet_running_pods 1", `kubelet_running_containers{container_state="exited"} 1`, `kubelet_node_name{node="n"} 1`,
		`kubelet_desired_pods{static=""} 2`, `kubelet_desired_pods{static="true"} 0`, `kubelet_active_pods{static=""} 2`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, name := range []string{"capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"} {
		if want := "kubelet_volume_stats_" + name + `{namespace="ns",persistentvolumeclaim="c"} `; !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	var sum summary.Summary
	if err := json.Unmarshal([]byte(get("/stats/summary?only_cpu_and_memory=true")), &sum); err != nil || sum.Node.NodeName != "n" ||
		sum.Node.Fs != nil {
		t.Errorf("%+v (%v)", sum, err)
	}
	s.Runtime = fakeRuntime{failing: true}
	if text := get("/stats/summary"); !strings.Contains(text, "no connection") {
		t.Error(text)
	}
}

func TestParsePackets(t *testing.T) {
	text := "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
	got := parsePackets(text)
	if len(got) != 1 || got[0] != (packets{name: "eth0", received: 2, receivedDropped: 4, sent: 10, transmitDropped: 12}) {
		t.Errorf("%+v", got)
	}
}

func TestWorkingPods(t *testing.T) {
	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}
	static.Spec.Containers = make([]corev1.Container, 1)
	running := &fact.Pod{Sandboxes: []fact.Sandbox{{ID: "s"}}, Containers: []fact.Container{{SandboxID: "s", State: fact.Running}}}
	for _, x := range []struct {
		local pod.Local
		want  working
	}{
		{pod.Local{Pod: static}, working{"sync", "desired", "true"}},
		{pod.Local{Pod: static, Facts: running, Removed: true}, working{"terminating", "orphan", "true"}},
		{pod.Local{Pod: &corev1.Pod{}, Facts: running, Removed: true}, working{"terminating", "runtime_only", "unknown"}},
		{pod.Local{Pod: &corev1.Pod{}, Facts: &fact.Pod{}, Ended: true}, working{"terminated", "desired", ""}},
	} {
		if got := workingOf(x.local); got != x.want {
			t.Errorf("%+v, want %+v", got, x.want)
		}
	}
}

func TestSizesAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), newFolderSizes()
		size := func() Size {
			size, known := d.of(t.Context(), dir, time.Now())
			if !known {
				t.Error("the size is unknown")
			}
			return size
		}
		first := size()
		if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 10000), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := size(); got != first {
			t.Errorf("%+v at once, want %+v", got, first)
		}
		time.Sleep(sizeCacheTime)
		if got := size(); got.Bytes < first.Bytes+10000 || got.Inodes != first.Inodes+1 {
			t.Errorf("%+v later, was %+v", got, first)
		}
	})
}

func TestMeasureCountsLinksOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	one := measure(t.Context(), dir)
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if two := measure(t.Context(), dir); two != one {
		t.Errorf("%+v with a link, %+v without", two, one)
	}
	if none := measure(t.Context(), filepath.Join(dir, "none")); none != (Size{}) {
		t.Errorf("%+v for a missing folder", none)
	}
}

// TestUnreadableIsUnknown measures a machine of which some files cannot be read: such values are left out, and are not zero.
func TestUnreadableIsUnknown(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half": "MemTotal: 1000 kB\n"} {
		s, _ := newStats(t)
		s.proc = t.TempDir()
		if err := os.WriteFile(filepath.Join(s.proc, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sum, err := s.Summary(t.Context(), Whole)
		if err != nil {
			t.Fatal(err)
		}
		if n := sum.Node; n.Memory != nil || n.Swap != nil || n.CPU != nil || n.Rlimit != nil || !n.StartTime.IsZero() {
			t.Errorf("%s: memory %+v, swap %+v, CPU %+v, processes %+v, start %v", name, n.Memory, n.Swap, n.CPU, n.Rlimit, n.StartTime)
		}
		res := httptest.NewRecorder()
		handler := s.metricsHandler(containerMetrics(), Whole, (*Stats).containers)
		handler.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if strings.Contains(res.Body.String(), "machine_memory_bytes") {
			t.Errorf("%s: the metrics say how much memory there is:\n%s", name, res.Body)
		}
	}
}

// TestMeasureOfHostileFolders measures folders deeper than a path can be long, with a link out of them, and stops when its time
// is over.
func TestMeasureOfHostileFolders(t *testing.T) {
	root := t.TempDir()
	at, err := unix.Open(root, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 50
	name := strings.Repeat("d", 200)
	for range depth {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_DIRECTORY, 0)
		if err := errors.Join(err, unix.Close(at)); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	defer func() { _ = unix.Close(at) }()
	if err := unix.Symlinkat("/usr", at, "link"); err != nil {
		t.Fatal(err)
	}
	if got := measure(t.Context(), root); got.Inodes != depth+2 {
		t.Errorf("%d files, want %d", got.Inodes, depth+2)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if got := measure(over, root); got.Inodes != 1 {
		t.Errorf("%d files were counted after the time was over", got.Inodes)
	}
	sizes := newFolderSizes()
	if _, known := sizes.of(over, root, time.Now()); known {
		t.Error("what was never measured is known")
	}
	want, _ := sizes.of(t.Context(), root, time.Now())
	if got, known := sizes.of(over, root, time.Now().Add(90*time.Second)); !known || got != want {
		t.Errorf("got %+v, %t, want the last size %+v", got, known, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"stat", "meminfo", "net/dev"} {
		text, err := os.ReadFile(filepath.Join("testdata/proc", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(_ *testing.T, text string) {
		parseStat(text)
		parseTable(text)
		parseNet(text)
		parsePackets(text)
	})
}

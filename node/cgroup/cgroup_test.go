package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/node/nodetest"
)

func readPod(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "1234-abcd"
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLimits(t *testing.T) {
	nodetest.Cases(t, "testdata/limits.txt", func(t *testing.T, input string) string {
		p := readPod(t, input)
		l := Policy{PodPids: 100, Reserve: true, Throttle: 0.9}.LimitsOf(p)
		var out strings.Builder
		for _, v := range []int{1, 2} {
			h := Host{Version: v, Pages: []string{"2MB"}}
			var parts []string
			for _, f := range h.files(l) {
				if !strings.Contains(f.name, "rsvd") {
					parts = append(parts, f.name+"="+f.value)
				}
			}
			fmt.Fprintf(&out, "v%d: %s\n", v, strings.Join(parts, " "))
		}
		fmt.Fprintln(&out, "systemd:", strings.Join(Host{Version: 2}.properties(l), " "))
		for _, d := range []Driver{Cgroupfs, Systemd} {
			fmt.Fprintln(&out, New(Config{Root: "proa0", Driver: d}).Parent(p))
		}
		return out.String()
	})
}

func TestSharesAndQuota(t *testing.T) {
	for _, c := range []struct {
		milli  int64
		shares uint64
		weight uint64
	}{{0, 2, 1}, {1, 2, 1}, {100, 102, 4}, {1000, 1024, 39}, {300000, 262144, 10000}} {
		if got := Shares(c.milli); got != c.shares || weight(got) != c.weight {
			t.Errorf("%dm: got %d shares, weight %d; want %d, %d", c.milli, got, weight(got), c.shares, c.weight)
		}
	}
	if got := Quota(5, 100000); got != 1000 {
		t.Errorf("a quota of 5m is %d, want the minimum of the kernel", got)
	}
	if got := MilliCPU(Shares(250)); got != 250 {
		t.Errorf("shares of 250m are converted back to %dm", got)
	}
}

const legacyMounts = `25 1 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
27 25 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
28 25 0:26 / /mnt/other/place/memory rw - cgroup cgroup rw,memory
29 25 0:27 / /sys/fs/cgroup/pids rw shared:5 - cgroup cgroup rw,pids
30 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
31 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestParseMounts(t *testing.T) {
	h, err := parseMounts(strings.NewReader(legacyMounts))
	if err != nil {
		t.Fatal(err)
	}
	if h.Version != 1 || h.Mounts["memory"] != "/sys/fs/cgroup/memory" || h.Mounts["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" ||
		h.Mounts["systemd"] == "" {
		t.Errorf("got %+v", h)
	}
	want := []string{"/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/systemd/a",
		"/sys/fs/cgroup/unified/a"}
	if got := h.dirs("/a"); !slices.Equal(got, want) {
		t.Errorf("folders %v, want %v", got, want)
	}
	h, err = parseMounts(strings.NewReader(`25 1 0:23 / /sys/fs/my\040cgroup rw - cgroup2 cgroup2 rw` + "\n"))
	if err != nil || h.Version != 2 || h.Unified != "/sys/fs/my cgroup" {
		t.Errorf("got %+v, %v", h, err)
	}
	if _, err := parseMounts(strings.NewReader("invalid\n\n")); err == nil {
		t.Error("a machine without cgroups is accepted")
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(legacyMounts)
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := parseMounts(strings.NewReader(text)); err == nil && h.Version == 0 {
			t.Error("a host without a version and without an error")
		}
	})
}

func TestCgroupNames(t *testing.T) {
	for _, d := range []Driver{Cgroupfs, Systemd} {
		n := name{"proa1", "kubepods", "burstable", "pod12-34"}
		if uid, ok := uidOf(d, filepath.Base(n.path(d))); !ok || uid != "12-34" {
			t.Errorf("%s: the UID of %s is %q", d, n.path(d), uid)
		}
	}
	for _, dir := range []string{"burstable", "cgroup.procs", "kubepods-burstable.slice", "pod"} {
		if uid, ok := uidOf(Cgroupfs, dir); ok {
			t.Errorf("%s is taken for the cgroup of Pod %q", dir, uid)
		}
	}
	if RootFor("/var/lib/proa") == RootFor("/var/lib/proa2") || RootFor("/a/") != RootFor("/a") {
		t.Error("the root does not follow from the data folder")
	}
	for _, uid := range []types.UID{"", "a/b", "../x", "a_b"} {
		p := &corev1.Pod{}
		p.UID = uid
		if got := New(Config{}).Parent(p); got != "" {
			t.Errorf("the UID %q has the cgroup %s", uid, got)
		}
	}
}

// fakeTree returns a Tree whose files are in an ordinary folder.
func fakeTree(t *testing.T, version int) *Tree {
	dir := t.TempDir()
	h := Host{Version: version, Unified: dir, Mounts: map[string]string{}, Pages: []string{"2MB"}}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "cpuset"} {
		h.Mounts[c] = dir
		if version == 1 {
			h.Mounts[c], h.Unified = filepath.Join(dir, c), ""
		}
	}
	t1 := New(Config{Host: h, Root: "proa0", Log: slog.New(slog.DiscardHandler)})
	t1.writeFile = func(path, value string) error { return os.WriteFile(path, []byte(value), 0o644) }
	return t1
}

// readCgroupFile returns the content of a file of a cgroup, or nothing if there is none.
func readCgroupFile(t *testing.T, tr *Tree, controller, group, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tr.Host.dir(controller, group), file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestTree(t *testing.T) {
	for version, file := range map[int]string{1: "cpu.shares", 2: "cpu.weight"} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			tr := fakeTree(t, version)
			allocatable := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
				PIDs: resource.MustParse("1000")}
			if err := tr.Start(allocatable); err != nil {
				t.Fatal(err)
			}
			if got := readCgroupFile(t, tr, "pids", "/proa0/kubepods", "pids.max"); got != "1000" {
				t.Errorf("all Pods may have %q processes", got)
			}
			classShares := func() string { return readCgroupFile(t, tr, "cpu", "/proa0/kubepods/burstable", file) }
			empty := classShares()
			p := readPod(t, "containers: [{name: a, resources: {requests: {cpu: 500m}}}]")
			parent, err := tr.Ensure(p)
			if err != nil || parent != "/proa0/kubepods/burstable/pod1234-abcd" {
				t.Fatalf("got %q, %v", parent, err)
			}
			withPod := classShares()
			if withPod == empty {
				t.Error("the shares of the QoS class do not include the requests of its Pod")
			}
			// After a restart the agent finds the Pod, and the QoS class keeps its shares.
			next := New(tr.Config)
			next.writeFile = tr.writeFile
			if err := next.Start(allocatable); err != nil {
				t.Fatal(err)
			}
			if got := classShares(); got != withPod {
				t.Errorf("after a restart the QoS class has %s, before it had %s", got, withPod)
			}
			if uids, err := next.PodUIDs(); err != nil || !slices.Equal(uids, []types.UID{"1234-abcd"}) {
				t.Errorf("Pods with cgroups: %v, %v", uids, err)
			}
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
			if err := next.Update(p); err != nil || classShares() == withPod {
				t.Errorf("larger requests of a Pod did not change its QoS class: %v", err)
			}
		})
	}
}

func TestUnifiedControllers(t *testing.T) {
	tr := fakeTree(t, 2)
	tr.writeFile = func(path, value string) error {
		if strings.HasSuffix(path, "cgroup.subtree_control") && value == "+memory" {
			return os.ErrPermission
		}
		return os.WriteFile(path, []byte(value), 0o644)
	}
	if err := tr.Start(nil); err == nil || !strings.Contains(err.Error(), `"memory" controller`) {
		t.Errorf("got %v", err)
	}
}

func TestStats(t *testing.T) {
	for version, files := range map[int]map[string]string{
		1: {
			"cpuacct/g/cpuacct.usage": "5000\n", "cpu/g/cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 77\n",
			"memory/g/memory.usage_in_bytes": "1000\n", "memory/g/memory.limit_in_bytes": "9223372036854771712\n",
			"memory/g/memory.stat": "cache 1\ntotal_inactive_file 300\ntotal_rss 400\ntotal_pgfault 9\ntotal_pgmajfault 3\n",
			"pids/g/pids.current":  "7\n", "pids/g/pids.max": "max\n",
			"memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		},
		2: {
			"g/cgroup.procs": "", "g/cpu.stat": "usage_usec 5\nnr_periods 4\nnr_throttled 2\nthrottled_usec 77\n",
			"g/memory.current": "1000\n", "g/memory.max": "max\n",
			"g/memory.stat":  "anon 400\nfile 1\ninactive_file 300\npgfault 9\npgmajfault 3\n",
			"g/pids.current": "7\n", "g/pids.max": "max\n", "g/memory.events": "oom 1\noom_kill 1\n",
			"g/io.stat":         "8:0 rbytes=4096 wbytes=1 rios=2 wios=3\n8:16 rbytes=4 wbytes=1 rios=2 wios=3\n",
			"g/memory.pressure": "some avg10=1.50 avg60=0.00 avg300=0.00 total=99\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		},
	} {
		tr := fakeTree(t, version)
		base := filepath.Dir(tr.Host.dir("cpu", ""))
		if version == 2 {
			base = tr.Host.Unified
		}
		for file, text := range files {
			at := filepath.Join(base, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		u, err := tr.Host.Stats("/g")
		if err != nil {
			t.Fatal(err)
		}
		if u.CPU.Total != 5000 || u.CPU.Throttled != 2 || u.Pids != (PidUsage{Current: 7}) {
			t.Errorf("v%d: got %+v", version, u)
		}
		want := MemoryUsage{Usage: 1000, WorkingSet: 700, RSS: 400, Cache: u.Memory.Cache, Faults: 9, MajorFault: 3, OOMKills: 1}
		if u.Memory != want {
			t.Errorf("v%d: memory %+v, want %+v", version, u.Memory, want)
		}
		if version == 2 && (u.IO != IOUsage{4100, 2, 4, 6} || u.Pressure["memory"].Some.Avg10 != 1.5 ||
			u.Pressure["memory"].Full.Total != 5) {
			t.Errorf("v2: got %+v", u)
		}
		if _, err := tr.Host.Stats("/none"); err == nil {
			t.Errorf("v%d: a cgroup that does not exist has stats", version)
		}
	}
}

// TestRealCgroups creates cgroups in the kernel, moves a process into one, and removes them.
func TestRealCgroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("cgroups can only be created as root")
	}
	h, err := FindHost()
	if err != nil {
		t.Skip(err)
	}
	tr := New(Config{Host: h, Root: RootFor(t.TempDir()), Log: slog.New(slog.DiscardHandler), Policy: Policy{PodPids: 50}})
	t.Cleanup(func() {
		if err := tr.Purge(); err != nil {
			t.Error(err)
		}
		for _, dir := range h.dirs(tr.all[:1].path(Cgroupfs)) {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	})
	if err := tr.Start(corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")}); err != nil {
		t.Skipf("this machine does not allow new cgroups: %v", err)
	}
	p := readPod(t, "containers: [{name: a, resources: {requests: {cpu: 100m}, limits: {cpu: 200m, memory: 64Mi}}}]")
	parent, err := tr.Ensure(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Ensure(p); err != nil {
		t.Fatalf("again: %v", err)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- sleep.Wait() }()
	inner := filepath.Join(h.dir("memory", parent), "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(inner, "cgroup.procs"), fmt.Sprint(sleep.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	u, err := h.Stats(parent)
	if err != nil || u.Memory.Limit != 64<<20 || u.Pids.Limit != 50 {
		t.Errorf("got %+v, %v", u, err)
	}
	if err := tr.Remove(p.UID); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
	if uids, err := tr.PodUIDs(); err != nil || len(uids) != 0 {
		t.Errorf("Pods with cgroups: %v, %v", uids, err)
	}
	if err := tr.Remove(p.UID); err != nil {
		t.Errorf("removed a second time: %v", err)
	}
}

// TestKillUnified kills all processes of a cgroup v2 at once. Hosts with version 1 may have version 2 mounted too.
func TestKillUnified(t *testing.T) {
	h, err := FindHost()
	if err != nil || h.Unified == "" || os.Getuid() != 0 {
		t.Skip("this needs root and a mount of version 2")
	}
	dir := filepath.Join(h.Unified, RootFor(t.TempDir()))
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Skipf("this machine does not allow new cgroups: %v", err)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- sleep.Wait() }()
	if err := writeFile(filepath.Join(inner, "cgroup.procs"), fmt.Sprint(sleep.Process.Pid)); err != nil {
		t.Error(err)
	}
	if err := killAndRemove(dir); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
}

func BenchmarkEnsure(b *testing.B) {
	h, err := FindHost()
	if err != nil || os.Getuid() != 0 {
		b.Skip("cgroups can only be created as root")
	}
	tr := New(Config{Host: h, Root: RootFor(b.TempDir()), Log: slog.New(slog.DiscardHandler)})
	if err := tr.Start(nil); err != nil {
		b.Skip(err)
	}
	defer func() { _ = tr.Purge() }()
	p := readPod(b, "containers: [{name: a, resources: {limits: {cpu: 200m, memory: 64Mi}}}]")
	for b.Loop() {
		if _, err := tr.Ensure(p); err != nil {
			b.Fatal(err)
		}
		if err := tr.Remove(p.UID); err != nil {
			b.Fatal(err)
		}
	}
}

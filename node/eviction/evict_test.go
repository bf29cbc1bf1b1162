package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/event"
	"proa.dev/node/podstate"
)

func TestCheckThresholds(t *testing.T) {
	text, err := os.ReadFile("testdata/look.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\ncase: ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		t.Run(name, func(t *testing.T) { runCase(t, body) })
	}
}

// runCase runs one case of testdata/look.txt: settings, and then measurements with the expected findings.
func runCase(t *testing.T, body string) {
	s := Settings{Hard: map[string]string{}, Soft: map[string]string{}, SoftGrace: map[string]string{}, MinimumReclaim: map[string]string{}}
	var state State
	var thresholds []Threshold
	start := time.Unix(1000, 0)
	var measured time.Time
	for line := range strings.Lines(body) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) > 1 {
			signal, value, _ := strings.Cut(words[1], "=")
			switch words[0] {
			case "hard":
				s.Hard[signal] = value
				continue
			case "soft":
				s.Soft[signal], s.SoftGrace[signal] = value, words[2]
				continue
			case "reclaim":
				s.MinimumReclaim[signal] = value
				continue
			}
		}
		if thresholds == nil {
			var err error
			if thresholds, err = Parse(s); err != nil {
				t.Fatal(err)
			}
		}
		after, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(line, " same ") {
			measured = start.Add(after)
		}
		now := map[Signal]reading{}
		at := slices.Index(words, "->")
		for _, w := range words[1:at] {
			signal, amounts, ok := strings.Cut(w, "=")
			available, capacity, _ := strings.Cut(amounts, "/")
			if ok {
				now[Signal(signal)] = reading{resource.MustParse(available), resource.MustParse(capacity), measured}
			}
		}
		var f Findings
		state, f = checkThresholds(state, thresholds, now, start.Add(after), 5*time.Minute)
		if got, want := f.String(), strings.Join(words[at+1:], " "); got != want {
			t.Errorf("%s: got %q, want %q", words[0], got, want)
		}
	}
}

func (f Findings) String() string {
	var out []string
	for _, c := range f.Conditions {
		out = append(out, string(c))
	}
	if len(f.Crossed) > 0 {
		out[len(out)-1] += ";"
		for _, t := range f.Crossed {
			out = append(out, string(t.Signal))
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, " ")
}

// TestUnknownIsNotZero observes measurements without values: nothing is short of anything.
func TestUnknownIsNotZero(t *testing.T) {
	thresholds, err := Parse(Settings{Hard: map[string]string{
		"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.inodesFree": "5", "pid.available": "100",
	}})
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	empty := &statsv1.FsStats{AvailableBytes: &n, CapacityBytes: &n, Inodes: &n, InodesFree: &n}
	for name, n := range map[string]statsv1.NodeStats{
		"nothing": {},
		"empty": {
			Memory: &statsv1.MemoryStats{}, Fs: &statsv1.FsStats{}, Runtime: &statsv1.RuntimeStats{}, Rlimit: &statsv1.RlimitStats{},
		},
		"zero": {
			Memory: &statsv1.MemoryStats{AvailableBytes: &n, WorkingSetBytes: &n}, Fs: empty,
			Runtime: &statsv1.RuntimeStats{ImageFs: empty, ContainerFs: empty},
			Rlimit:  &statsv1.RlimitStats{MaxPID: new(int64), NumOfRunningProcesses: new(int64)},
		},
	} {
		now := observe(&statsv1.Summary{Node: n})
		if _, f := checkThresholds(State{}, thresholds, now, time.Unix(1000, 0), time.Minute); len(f.Crossed)+len(f.Conditions) > 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestParse(t *testing.T) {
	for _, x := range []struct {
		s    Settings
		want string
	}{
		{Settings{Hard: DefaultHardThresholds()}, "imagefs.available<0.15:10Gi for 0s, imagefs.inodesFree<0.05 for 0s, memory.available<100Mi for 0s, nodefs.available<0.1:5Gi for 0s, nodefs.inodesFree<0.05 for 0s, allocatableMemory.available<100Mi for 0s"},
		{Settings{Hard: map[string]string{"memory.available": "0%", "nodefs.available": "100%"}}, ""},
		{Settings{Soft: map[string]string{"memory.available": "1Gi"}, SoftGrace: map[string]string{"memory.available": "1m"}},
			"memory.available<1Gi for 1m0s"},
		{Settings{Hard: map[string]string{"nodefs.available": "10%:0"}},
			"error: eviction threshold nodefs.available: the largest amount of 10%:0 must be positive"},
		{Settings{Hard: map[string]string{"nodefs.available": "10%:x"}}, "error: eviction threshold nodefs.available: " +
			"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		{Settings{Hard: map[string]string{"nodefs.available": "110%:1Gi"}},
			"error: eviction percentage threshold nodefs.available must be <= 100%: 110%:1Gi"},
		{Settings{Hard: map[string]string{"cpu.available": "1"}}, "error: unsupported eviction signal cpu.available"},
		{Settings{Hard: map[string]string{"memory.available": "-1Mi"}},
			"error: eviction threshold memory.available must be positive: -1Mi"},
		{Settings{Hard: map[string]string{"memory.available": "-1%"}}, "error: eviction percentage threshold memory.available must be >= 0%: -1%"},
		{Settings{Hard: map[string]string{"memory.available": "101%"}}, "error: eviction percentage threshold memory.available must be <= 100%: 101%"},
		{Settings{Soft: map[string]string{"memory.available": "1Gi"}}, "error: grace period must be specified for the soft eviction threshold memory.available"},
		{Settings{SoftGrace: map[string]string{"memory.available": "-1m"}}, "error: invalid eviction grace period specified: -1m, must be a positive value"},
		{Settings{MinimumReclaim: map[string]string{"memory.available": "0%"}}, "error: eviction percentage minimum reclaim memory.available must be positive: 0%"},
		{Settings{MinimumReclaim: map[string]string{"memory.available": "-1"}}, "error: negative eviction minimum reclaim specified for memory.available"},
	} {
		all, err := Parse(x.s)
		var keys []string
		for _, a := range all {
			keys = append(keys, a.key())
		}
		got := strings.Join(keys, ", ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "100Mi")
	f.Add("nodefs.available", "10%")
	f.Add("nodefs.available", "10%:5Gi")
	f.Fuzz(func(t *testing.T, signal, text string) {
		all, err := Parse(Settings{Hard: map[string]string{signal: text}})
		for _, a := range all {
			q := a.Value.of(resource.MustParse("100"))
			if err != nil || a.Value.Quantity == nil && (a.Value.Fraction < 0 || a.Value.Fraction > 1) || q.Sign() < 0 {
				t.Errorf("%s %s: %+v", signal, text, a)
			}
		}
	})
}

func TestReserved(t *testing.T) {
	all, err := Parse(Settings{Hard: DefaultHardThresholds()})
	if err != nil {
		t.Fatal(err)
	}
	got := Reserved(all, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")})
	m, s := got[corev1.ResourceMemory], got[corev1.ResourceEphemeralStorage]
	if m.String() != "100Mi" || s.String() != "5Gi" || len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestContainerFs(t *testing.T) {
	all, err := Parse(Settings{Hard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%",
		"containerfs.available": "50%"}})
	if err != nil {
		t.Fatal(err)
	}
	for l, want := range map[Layout]string{{}: "0.1", {Images: true}: "0.15", {Images: true, Containers: true}: "0.1"} {
		var got string
		for _, x := range withContainerFs(all, l) {
			if x.Signal == ContainerFsAvailable {
				got += fmt.Sprint(x.Value.Fraction)
			}
		}
		if got != want {
			t.Errorf("%+v: %s, want %s", l, got, want)
		}
	}
}

func newPod(name string, priority int32, memory string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name)}, Spec: corev1.PodSpec{
		Priority: &priority, Containers: []corev1.Container{{Name: "c"}}, TerminationGracePeriodSeconds: new(int64(30)),
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if memory != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return p
}

// podStats returns the statistics of a Pod: memory, processes, and bytes in its root file system, logs and volume.
func podStats(name, memory string, processes, root, logs, volume uint64) statsv1.PodStats {
	q := resource.MustParse(memory)
	fs := func(n uint64) *statsv1.FsStats { return &statsv1.FsStats{UsedBytes: &n, InodesUsed: &n} }
	return statsv1.PodStats{
		PodRef: statsv1.PodReference{UID: name}, Memory: &statsv1.MemoryStats{WorkingSetBytes: new(uint64(q.Value()))},
		ProcessStats: &statsv1.ProcessStats{ProcessCount: &processes}, EphemeralStorage: fs(root + logs + volume),
		Containers: []statsv1.ContainerStats{{Name: "c", Rootfs: fs(root), Logs: fs(logs),
			Memory: &statsv1.MemoryStats{WorkingSetBytes: new(uint64(q.Value()))}}},
		VolumeStats: []statsv1.VolumeStats{{Name: "v", FsStats: *fs(volume)}},
	}
}

func TestRankPods(t *testing.T) {
	pods := []*corev1.Pod{
		newPod("within", 0, "2Gi"), newPod("little", 0, "900Mi"), newPod("much", 0, "100Mi"), newPod("important", 100, ""),
		newPod("unknown", 100, "1Gi"), newPod("lowly", -5, "999Mi"),
	}
	use := usagesOf(&statsv1.Summary{Pods: []statsv1.PodStats{
		podStats("within", "1Gi", 50, 1, 1, 100), podStats("little", "1Gi", 1, 50, 0, 0), podStats("much", "1Gi", 5, 2, 2, 2),
		podStats("important", "4Gi", 100, 0, 90, 0), podStats("lowly", "1000Mi", 2, 3, 3, 3),
	}})
	for _, x := range []struct {
		signal Signal
		layout Layout
		want   string
	}{
		{MemoryAvailable, Layout{}, "unknown lowly much little important within"},
		{AllocatableMemoryAvailable, Layout{}, "unknown lowly much little important within"},
		{PIDAvailable, Layout{}, "lowly within much little unknown important"},
		{NodeFsAvailable, Layout{}, "unknown lowly within little much important"},
		{NodeFsAvailable, Layout{Images: true}, "unknown lowly within much important little"},
		{ImageFsAvailable, Layout{Images: true}, "unknown lowly little much within important"},
		{NodeFsInodesFree, Layout{}, "unknown lowly within little much important"},
	} {
		var got []string
		for _, p := range rank(pods, x.signal, use, x.layout) {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s %+v: got %s, want %s", x.signal, x.layout, strings.Join(got, " "), x.want)
		}
	}
}

func TestExceededLimit(t *testing.T) {
	limited := newPod("a", 0, "")
	limited.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10"))
	limited.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("100")}
	two := limited.DeepCopy()
	two.Spec.Containers = append(two.Spec.Containers, *two.Spec.Containers[0].DeepCopy())
	two.Spec.Containers[1].Name = "d"
	for _, x := range []struct {
		pod                *corev1.Pod
		root, logs, volume uint64
		layout             Layout
		want               string
	}{
		{limited, 50, 40, 10, Layout{}, ""},
		{limited, 0, 0, 11, Layout{}, `Usage of EmptyDir volume "v" exceeds the limit "10". `},
		{limited, 90, 5, 6, Layout{}, `Pod ephemeral local storage usage exceeds the total limit of containers 100. `},
		{two, 90, 11, 0, Layout{}, `Container c exceeded its local ephemeral storage limit "100". `},
		{two, 90, 11, 0, Layout{Images: true}, ``},
		{newPod("b", 0, ""), 1 << 40, 1 << 40, 1 << 40, Layout{}, ""},
	} {
		u := podStats("a", "1", 1, x.root, x.logs, x.volume)
		if got, _ := exceededLimit(x.pod, &u, x.layout); got != x.want {
			t.Errorf("%d %d %d: got %q, want %q", x.root, x.logs, x.volume, got, x.want)
		}
	}
}

func TestReclaim(t *testing.T) {
	for _, x := range []struct {
		s    Signal
		l    Layout
		want Reclaim
	}{
		{MemoryAvailable, Layout{}, Reclaim{}}, {PIDAvailable, Layout{}, Reclaim{}},
		{NodeFsAvailable, Layout{}, Reclaim{true, true}}, {ImageFsInodesFree, Layout{}, Reclaim{true, true}},
		{NodeFsAvailable, Layout{Images: true}, Reclaim{}}, {ImageFsAvailable, Layout{Images: true}, Reclaim{true, true}},
		{NodeFsAvailable, Layout{true, true}, Reclaim{true, false}}, {ImageFsAvailable, Layout{true, true}, Reclaim{false, true}},
		{ContainerFsAvailable, Layout{true, true}, Reclaim{true, false}},
	} {
		if got := reclaim(x.s, x.l); got != x.want {
			t.Errorf("%s %+v: %+v", x.s, x.l, got)
		}
	}
}

func TestOOMMessage(t *testing.T) {
	for record, want := range map[string]string{
		"6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=77,uid=0\n SUBSYSTEM=x":  "System OOM encountered, victim process: stress, pid: 77",
		"6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/x,task_memcg=/kubepods/x,task=a,pid=7,uid=0": "",
		"14,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task=forged,pid=77":                                                                           "",
		"6,1,2,-;something else": "", "": "", "x": "", "6;oom-kill:global_oom": "System OOM encountered",
	} {
		if got := oomMessage(record); got != want {
			t.Errorf("%s: %q", record, got)
		}
	}
}

// fakeNode is a node with settable resources. It records what the manager does.
type fakeNode struct {
	mu        sync.Mutex // guards the rest
	log       []string
	available uint64
	pods      []*corev1.Pod
	stats     []statsv1.PodStats
	freed     uint64 // bytes of the disk that deleting images frees
	disk      uint64
}

func (s *fakeNode) Event(about event.Subject, kind, reason, format string, args ...any) {
	s.record("%s %s %s: %s", about.Pod.Name, kind, reason, fmt.Sprintf(format, args...))
}

func (s *fakeNode) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// set changes the node, and returns the records since the last call.
func (s *fakeNode) set(change func()) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.log
	s.log = nil
	change()
	return out
}

func (s *fakeNode) measure(context.Context) (*statsv1.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := metav1.Now()
	return &statsv1.Summary{Pods: s.stats, Node: statsv1.NodeStats{
		Memory: &statsv1.MemoryStats{Time: at, AvailableBytes: new(s.available), WorkingSetBytes: new(uint64(1<<30 - s.available))},
		Fs:     &statsv1.FsStats{Time: at, AvailableBytes: new(s.disk), CapacityBytes: new(uint64(100 << 30))},
	}}, nil
}

func (s *fakeNode) newManager(t *testing.T, set Settings) *Manager {
	t.Helper()
	all, err := Parse(set)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Thresholds: all, MaxGrace: 20, Measure: s.measure, Layout: func(context.Context) (Layout, error) { return Layout{}, nil },
		Pods:     func() []*corev1.Pod { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.pods) },
		HasEnded: func(types.UID) bool { return true }, Events: s, Log: slog.New(slog.DiscardHandler),
		Evict: func(uid types.UID, v *podstate.Termination) {
			s.record("evict %s: %s %q %s %d", uid, v.Reason, v.Message, v.DisruptionReason, *v.Grace)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == uid })
		},
		FreeImages: func(context.Context) error {
			s.record("free images")
			s.mu.Lock()
			defer s.mu.Unlock()
			s.disk += s.freed
			return nil
		},
		RecordNodeEvent: func(kind, reason, text string) { s.record("%s %s: %s", kind, reason, text) },
		Changed:         func() { s.record("conditions") },
	})
}

func TestManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeNode{available: 50 << 20, disk: 50 << 30}
		static := newPod("static", -10, "")
		static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		s.pods = []*corev1.Pod{newPod("small", 0, "500Mi"), static, newPod("big", 0, "100Mi")}
		s.stats = []statsv1.PodStats{podStats("small", "10Mi", 1, 0, 0, 0), podStats("big", "900Mi", 1, 0, 0, 0),
			podStats("static", "1Gi", 1, 0, 0, 0)}
		m := s.newManager(t, Settings{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		synctest.Wait()
		got := s.set(func() { s.available = 500 << 20 })
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			"conditions", "Warning EvictionThresholdMet: Attempting to reclaim memory",
			"big Warning Evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 900Mi, request is 100Mi, has larger consumption of memory. ",
			`evict big: Evicted "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 900Mi, request is 100Mi, has larger consumption of memory. " TerminationByKubelet 1`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		shortage, isMemory := m.Pressure(corev1.NodeMemoryPressure)
		if _, isDisk := m.Pressure(corev1.NodeDiskPressure); !isMemory || isDisk || !strings.Contains(shortage, ", below its threshold ") {
			t.Error("the conditions are wrong")
		}

		// Images are deleted before Pods are evicted.
		if more := s.set(func() { s.disk, s.freed = 5<<30, 20<<30 }); len(more) > 0 {
			t.Errorf("although there is enough memory: %v", more)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := strings.Join(s.set(func() {}), "; "); got != "conditions; Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage; free images" {
			t.Error(got)
		}
		stop()
		<-done
	})
}

func TestSoftGraceIsBounded(t *testing.T) {
	s := &fakeNode{available: 50 << 20, disk: 50 << 30, pods: []*corev1.Pod{newPod("a", 0, "")}}
	m := s.newManager(t, Settings{Soft: map[string]string{"memory.available": "100Mi"},
		SoftGrace: map[string]string{"memory.available": "1ns"}})
	if _, err := m.checkOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if evicted, err := m.checkOnce(t.Context()); err != nil || len(evicted) != 1 {
		t.Fatal(evicted, err)
	}
	if last := s.log[len(s.log)-1]; !strings.HasSuffix(last, "TerminationByKubelet 20") {
		t.Error(last)
	}
}

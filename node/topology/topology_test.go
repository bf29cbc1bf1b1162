package topology

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testMachine returns a machine with two sockets of one NUMA node each, four cores per node and two threads per core. The
// second thread of the
// core of CPU n is n+8.
func testMachine() *Machine {
	m := &Machine{Memory: map[int]map[corev1.ResourceName]int64{}}
	for id := range 16 {
		core := id % 8
		m.CPUs = append(m.CPUs, CPU{ID: id, Core: core, Socket: core / 4, Node: core / 4})
	}
	for node := range 2 {
		m.Memory[node] = map[corev1.ResourceName]int64{corev1.ResourceMemory: 8 << 30, "hugepages-2Mi": 1 << 30}
	}
	return m
}

func TestSet(t *testing.T) {
	for _, x := range [][2]string{{"", ""}, {"0", "0"}, {"0-3,8", "0-3,8"}, {"3,2,1", "1-3"}, {"0-1,1-2", "0-2"}, {"5-4", "?"}, {"a", "?"},
		{"-1", "?"}, {"0-99999999", "?"}, {"1,", "?"}} {
		s, err := ParseSet(x[0])
		got := s.String()
		if err != nil {
			got = "?"
		}
		if got != x[1] {
			t.Errorf("%q: got %q, want %q", x[0], got, x[1])
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSet(text)
		if err != nil {
			return
		}
		again, err := ParseSet(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q: %q %v", text, s, err)
		}
	})
}

func TestTakeCPUs(t *testing.T) {
	for _, x := range []struct {
		free string
		n    int
		want string
	}{
		{"0-15", 8, "0-3,8-11"},           // a whole socket
		{"0-15", 2, "0,8"},                // a core
		{"1-15", 2, "1,9"},                // a core of the socket with fewer free CPUs
		{"0-15", 3, "0-1,8"},              // a core and a thread
		{"1-15", 1, "8"},                  // the other thread of a core that is in use
		{"0-15", 10, "0-4,8-12"},          // a socket and a core
		{"0-7", 4, "0-3"},                 // no whole core, but one node
		{"0,1,4-7,12-15", 4, "4-5,12-13"}, // whole cores rather than threads
		{"0", 2, "?"},
	} {
		free, err := ParseSet(x.free)
		if err != nil {
			t.Fatal(err)
		}
		s, err := testMachine().take(free, x.n)
		got := s.String()
		if err != nil {
			got = "?"
		}
		if got != x.want {
			t.Errorf("%d of %s: got %s, want %s", x.n, x.free, got, x.want)
		}
	}
}

func TestMergeHints(t *testing.T) {
	parseHints := func(text string) (out []Hint) {
		switch text {
		case "any":
			return nil
		case "none":
			return []Hint{}
		}
		for _, w := range strings.Fields(text) {
			nodes, preferred := strings.CutSuffix(w, "!")
			s, err := ParseSet(strings.ReplaceAll(nodes, "+", ","))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, Hint{MaskOf(s.IDs()...), preferred})
		}
		return out
	}
	for _, x := range []struct {
		wishes string
		want   map[Policy]string
	}{
		{"any", map[Policy]string{None: " false true", BestEffort: "0-1 true true", Restricted: "0-1 true true", SingleNode: " true true"}},
		{"0! 1! 0+1", map[Policy]string{BestEffort: "0 true true", Restricted: "0 true true", SingleNode: "0 true true"}},
		{"0! 1! 0+1; 1! 0+1", map[Policy]string{BestEffort: "1 true true", Restricted: "1 true true", SingleNode: "1 true true"}},
		{"0! 0+1; 1! 0+1", map[Policy]string{BestEffort: "0 false true", Restricted: "0 false false", SingleNode: "0-1 false false"}},
		{"0+1!", map[Policy]string{BestEffort: "0-1 true true", Restricted: "0-1 true true", SingleNode: " false false"}},
		{"0! 1!; none", map[Policy]string{BestEffort: "0 false true", Restricted: "0 false false", SingleNode: " false false"}},
	} {
		var hintLists [][]Hint
		for part := range strings.SplitSeq(x.wishes, "; ") {
			hintLists = append(hintLists, parseHints(part))
		}
		for p, want := range x.want {
			best, ok := merge(p, []int{0, 1}, hintLists)
			if p == SingleNode && want == "0-1 false false" {
				want = " false false"
			}
			if got := fmt.Sprintf("%s %v %v", best.Nodes, best.Preferred, ok); got != want {
				t.Errorf("%s %s: got %q, want %q", p, x.wishes, got, want)
			}
		}
	}
}

// newPod returns a Pod with containers such as "a=2" (guaranteed) or "a~2" (not), and memory as in "a=2/4Gi". Init containers come
// before a bar.
func newPod(uid, text string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid}}
	before, after, found := strings.Cut(text, "|")
	if !found {
		before, after = "", text
	}
	parse := func(text string) (out []corev1.Container) {
		for _, w := range strings.Fields(text) {
			name, cpus, _ := strings.Cut(strings.Replace(w, "~", "=", 1), "=")
			cpus, memory, has := strings.Cut(cpus, "/")
			if !has {
				memory = "1Gi"
			}
			list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse(memory)}
			c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}}
			if strings.Contains(w, "~") {
				c.Resources.Limits = nil
			}
			out = append(out, c)
		}
		return out
	}
	p.Spec.InitContainers, p.Spec.Containers = parse(before), parse(after)
	return p
}

func newManager(t *testing.T, dir string, p Policy, change func(*Config)) *Manager {
	t.Helper()
	cpus, err := NewCPUs(testMachine(), nil, 2, CPUOptions{})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := NewMemory(testMachine(), map[int]map[corev1.ResourceName]int64{0: {corev1.ResourceMemory: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Policy: p, Machine: testMachine(), CPUs: cpus, Memory: memory, Dir: dir}
	if change != nil {
		change(&c)
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAdmit(t *testing.T) {
	type step struct{ pod, containers, want string } // without containers the Pod is released
	for _, x := range []struct {
		name   string
		policy Policy
		pod    bool
		steps  []step
	}{
		{"exclusive and shared", None, false, []step{
			{"a", "x=2 y=1500m", "x 1,9 0, y 0,2-8,10-15 0"},
			{"b", "x~2", "x 0,2-8,10-15 "},
			{"a", "", "0-15"},
		}},
		{"all CPUs are allocated", None, false, []step{
			{"a", "x=14", "x 1-7,9-15 0"},
			{"b", "x=1", "UnexpectedAdmissionError Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, which is unexpected"},
		}},
		{"containers reuse CPUs of init containers", None, false, []step{
			{"a", "i=4 | x=2", "i 1-2,9-10 0, x 1,9 0"},
			{"b", "x=2", "x 3,11 0"},
		}},
		{"one node", SingleNode, false, []step{
			{"a", "x=6/2Gi", "x 1-3,9-11 0"},
			{"b", "x=6", "x 4-6,12-14 1"},
			{"c", "x=2", "x 7,15 1"},
			{"d", "x=1", "TopologyAffinityError Resources cannot be allocated with Topology locality"},
			{"a", "", "0-3,8-11"},
			{"d", "x=1", "x 1 0"},
		}},
		{"a request that needs two nodes", SingleNode, false, []step{{"a", "x=10", "TopologyAffinityError Resources cannot be allocated with Topology locality"}}},
		{"a request that needs two nodes, restricted", Restricted, false, []step{{"a", "x=10/10Gi", "x 1,4-7,9,12-15 0-1"}}},
		{"memory decides", Restricted, false, []step{
			{"a", "x=1/7Gi", "x 1 0"},
			{"b", "x=2/2Gi", "x 4,12 1"},
			{"c", "x=1/9Gi", "TopologyAffinityError Resources cannot be allocated with Topology locality"},
		}},
		{"the containers of a Pod together", SingleNode, true, []step{
			{"a", "x=2 y=2", "x 1,9 0, y 2,10 0"},
			{"b", "x=4 y=4", "x 4-5,12-13 1, y 6-7,14-15 1"},
			{"b", "", "0,3-8,11-15"},
			{"c", "x=5 y=4", "TopologyAffinityError Resources cannot be allocated with Topology locality"},
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newManager(t, t.TempDir(), x.policy, func(c *Config) { c.WholePod = x.pod })
			for i, s := range x.steps {
				p := newPod(s.pod, s.containers)
				got := ""
				if s.containers == "" {
					if err := m.Release(p.UID); err != nil {
						t.Fatal(err)
					}
					got = m.CPUs.State().Shared
				} else if v := m.Admit(context.Background(), p); v != nil {
					got = v.Reason + " " + v.Message
				} else {
					got = assignments(m, p)
				}
				if got != s.want {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func assignments(m *Manager, p *corev1.Pod) string {
	var out []string
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		cpus, nodes := m.Of(p.UID, c.Name)
		out = append(out, c.Name+" "+cpus+" "+nodes)
	}
	return strings.Join(out, ", ")
}

func TestWholeCores(t *testing.T) {
	m := newManager(t, t.TempDir(), None, func(c *Config) { c.CPUs.options.WholeCores = true })
	if v := m.Admit(t.Context(), newPod("a", "x=3")); v == nil || v.Reason != "SMTAlignmentError" ||
		v.Message != "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2" {
		t.Errorf("%+v", v)
	}
}

// TestStateIsRestored checks that the stored state is restored unchanged, and that a state that does not fit is rejected.
func TestStateIsRestored(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, dir, None, nil)
	p := newPod("a", "x=2")
	if v := m.Admit(t.Context(), p); v != nil {
		t.Fatal(v)
	}
	again := newManager(t, dir, None, nil)
	if got, want := assignments(again, p), assignments(m, p); got != want {
		t.Errorf("after a restart %s, before %s", got, want)
	}
	if v := again.Admit(t.Context(), p); v != nil || assignments(again, p) != assignments(m, p) {
		t.Errorf("admitted again: %v %s", v, assignments(again, p))
	}
	if err := again.ReleaseStale(func(types.UID) bool { return false }); err != nil || again.CPUs.State().Shared != "0-15" {
		t.Errorf("%v %s", err, again.CPUs.State().Shared)
	}
	file := filepath.Join(dir, "cpu_manager_state")
	for _, text := range []string{"invalid", `{"data":{"policyName":"static"},"checksum":1}`, ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cpus, err := NewCPUs(testMachine(), nil, 2, CPUOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Machine: testMachine(), CPUs: cpus, Dir: dir}); err == nil ||
			!strings.Contains(err.Error(), "please drain this node and delete the checkpoint file") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRandomAllocations allocates and releases at random: no CPU is allocated twice, and in the end all are free.
func TestRandomAllocations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, policy := range []Policy{None, BestEffort, Restricted, SingleNode} {
		m := newManager(t, t.TempDir(), policy, nil)
		admitted := map[string]*corev1.Pod{}
		for i := range 300 {
			uid := fmt.Sprint(r.IntN(12))
			if admitted[uid] != nil {
				delete(admitted, uid)
				if err := m.Release(types.UID(uid)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			p := newPod(uid, fmt.Sprintf("i=%d | x=%d y~1 z=%d/%dGi", 1+r.IntN(4), 1+r.IntN(5), r.IntN(3), 1+r.IntN(3)))
			if i%2 == 0 {
				p = newPod(uid, fmt.Sprintf("i=%d | x=%d z=%d/%dGi", 1+r.IntN(4), 1+r.IntN(5), 1+r.IntN(3), 1+r.IntN(3)))
			}
			if m.Admit(t.Context(), p) == nil {
				admitted[uid] = p
			}
			taken := Set{}
			for uid, p := range admitted {
				own := Set{}
				for _, c := range p.Spec.Containers {
					s, _ := m.CPUs.Exclusive(types.UID(uid), c.Name)
					if len(own.With(s)) != len(own)+len(s) {
						t.Fatalf("%s: CPUs of Pod %s are allocated twice", policy, uid)
					}
					own = own.With(s)
				}
				for _, c := range p.Spec.InitContainers {
					s, _ := m.CPUs.Exclusive(types.UID(uid), c.Name)
					own = own.With(s)
				}
				if len(taken.With(own)) != len(taken)+len(own) {
					t.Fatalf("%s: CPUs are allocated to two Pods", policy)
				}
				taken = taken.With(own)
			}
			if !m.Memory.fits(m.Memory.state.Entries) {
				t.Fatalf("%s: more memory is allocated than exists", policy)
			}
		}
		for uid := range admitted {
			if err := m.Release(types.UID(uid)); err != nil {
				t.Fatal(err)
			}
		}
		if s := m.CPUs.State(); s.Shared != "0-15" || len(s.Entries) != 0 || len(m.Memory.State().Entries) != 0 {
			t.Errorf("%s: allocations are left: %+v", policy, s)
		}
	}
}

// fakeProvider is another provider of hints, such as the device manager.
type fakeProvider struct {
	hints map[string][]Hint
	err   error
	near  []Hint
}

func (o *fakeProvider) Hints(*corev1.Pod, *corev1.Container) map[string][]Hint { return o.hints }

func (o *fakeProvider) Allocate(_ context.Context, _ *corev1.Pod, _ *corev1.Container, near Hint) error {
	o.near = append(o.near, near)
	return o.err
}

func TestHintsOfOtherProviders(t *testing.T) {
	o := &fakeProvider{hints: map[string][]Hint{"gpu": {{MaskOf(1), true}}}}
	m := newManager(t, t.TempDir(), SingleNode, func(c *Config) { c.Others = []Provider{o} })
	if v := m.Admit(t.Context(), newPod("a", "x=2")); v != nil || assignments(m, newPod("a", "x=2")) != "x 4,12 1" ||
		o.near[0].Nodes != MaskOf(1) {
		t.Errorf("%v %s", v, assignments(m, newPod("a", "x=2")))
	}
	o.err = errors.New("no healthy devices present")
	if v := m.Admit(t.Context(), newPod("b", "x=2")); v == nil || v.Message != "Allocate failed due to no healthy devices present, which is unexpected" {
		t.Errorf("%v", v)
	}
}

func TestReadMachine(t *testing.T) {
	sys := fstest.MapFS{}
	put := func(name, text string) { sys[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	put("devices/system/cpu/online", "0-3")
	for id := range 4 {
		put(fmt.Sprintf("devices/system/cpu/cpu%d/topology/core_id", id), fmt.Sprint(id%2))
		put(fmt.Sprintf("devices/system/cpu/cpu%d/topology/physical_package_id", id), fmt.Sprint(id/2))
	}
	for node := range 2 {
		put(fmt.Sprintf("devices/system/node/node%d/cpulist", node), fmt.Sprintf("%d-%d", 2*node, 2*node+1))
		put(fmt.Sprintf("devices/system/node/node%d/meminfo", node),
			fmt.Sprintf("Node %d MemTotal:       4096 kB\nNode %d MemFree: 1 kB", node, node))
		put(fmt.Sprintf("devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages", node), "1")
	}
	m, err := read(sys)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(m.CPUs, m.Memory), "[{0 0 0 0} {1 1 0 0} {2 0 1 1} {3 1 1 1}] map[0:map[hugepages-2Mi:2097152 memory:2097152] 1:map[hugepages-2Mi:2097152 memory:2097152]]"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	here, err := Read()
	if err != nil || len(here.CPUs) == 0 || len(here.Nodes()) == 0 {
		t.Errorf("this machine: %+v %v", here, err)
	}
}

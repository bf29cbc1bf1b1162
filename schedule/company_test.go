package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/gr"
)

// crowdPod makes a pod of one of a few templates, which want all sorts of things of each other.
func crowdPod(i int, template int) *corev1.Pod {
	like := func(app int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(app)}}
	}
	term := func(app int, key string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: like(app), TopologyKey: key}
	}
	weighted := func(app int, key string) []corev1.WeightedPodAffinityTerm {
		return []corev1.WeightedPodAffinityTerm{{Weight: int32(10 + app), PodAffinityTerm: term(app, key)}}
	}
	constraint := func(key string, how corev1.UnsatisfiableConstraintAction, skew int32) corev1.TopologySpreadConstraint {
		return corev1.TopologySpreadConstraint{MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: how, LabelSelector: like(template)}
	}
	p := benchPod(i)
	p.Labels = map[string]string{"app": fmt.Sprint(template)}
	zone, host := corev1.LabelTopologyZone, corev1.LabelHostname
	switch template {
	case 0:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			constraint(zone, corev1.DoNotSchedule, 1), constraint(host, corev1.ScheduleAnyway, 1),
		}
	case 1:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			constraint(host, corev1.DoNotSchedule, 2), constraint(zone, corev1.ScheduleAnyway, 3),
		}
	case 2:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term(2, host)},
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(0, zone),
		}}
	case 3:
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term(3, zone)},
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(1, host),
		}}
	case 5: // it is spread because of its owner
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "five", UID: "five", Controller: new(true)}}
	case 4:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(5, zone)},
		}}
	}
	return p
}

// TestToldIsPrepared holds what plugins know from being told of pods that come and go against what they find out by looking
// at all pods: every decision must be the same.
func TestToldIsPrepared(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		objects := things{}
		objects.put(gr.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "five", UID: "five"}, Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "5"}},
		}})
		state, kept := NewState(objects), newKept()
		for i := range 3 + rng.IntN(10) {
			state.SetNode(benchNode(i))
		}
		profiles, err := Config{}.profiles(Deps{})
		if err != nil {
			t.Fatal(err)
		}
		profile, placed := &profiles[0], []types.UID{}
		for i := range 300 {
			pod := crowdPod(i, rng.IntN(7))
			try := &try{Entry: &Entry{Pod: NewPodInfo(pod)}, profile: profile}
			try.info = try.Pod
			s, choice := state.Snapshot(), Seed{Start: rng.IntN(100), Tie: rng.Uint64()}
			told := kept.decide(s, try, choice, state.between)
			fresh := Decide(s, NewPodInfo(pod), profile, choice)
			if told.Node != fresh.Node || told.Score != fresh.Score || told.Message() != fresh.Message() {
				t.Fatalf("seed %d, pod %d: told %q %d %q, fresh %q %d %q", seed, i,
					told.Node, told.Score, told.Message(), fresh.Node, fresh.Score, fresh.Message())
			}
			if told.Node != "" {
				state.AddPod(try.info, told.Node)
				placed = append(placed, pod.UID)
			}
			switch at := rng.IntN(len(placed) + 1); {
			case at == len(placed):
			case rng.IntN(3) == 0:
				state.RemovePod(placed[at])
				placed = append(placed[:at], placed[at+1:]...)
			case rng.IntN(10) == 0: // an image comes to a node
				n := state.Snapshot().At(rng.IntN(state.Snapshot().Len())).Node.DeepCopy()
				n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.k8s.io/pause:3.10"}, SizeBytes: 1 << 30}}
				state.SetNode(n)
			case rng.IntN(20) == 0: // a node moves
				n := state.Snapshot().At(rng.IntN(state.Snapshot().Len())).Node.DeepCopy()
				n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", rng.IntN(4))
				state.SetNode(n)
			}
			waits := NewPodInfo(crowdPod(1000+i, rng.IntN(7)))
			waits.Pod.Spec.Priority = new(int32(rng.IntN(2)))
			state.Nominate(state.Snapshot().At(0).Name(), []*PodInfo{waits})
		}
	}
}

// TestTrialLeavesNoTrace tries to make room for pods and sees that decisions after it are what they were before.
func TestTrialLeavesNoTrace(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 2))
		state := benchState(4)
		profiles, err := Config{}.profiles(Deps{})
		if err != nil {
			t.Fatal(err)
		}
		profile := &profiles[0]
		for i := range 60 {
			p := crowdPod(i, rng.IntN(7))
			p.Spec.Priority = new(int32(rng.IntN(3)))
			state.AddPod(NewPodInfo(p), state.Snapshot().At(rng.IntN(4)).Name())
		}
		s := state.Snapshot()
		pre := &preemption{args: PreemptionArgs{10, 100}, evictor: newEvictor(Deps{}), nobody: No("nobody"), useless: No("useless")}
		for template := range 7 {
			pod := crowdPod(1000, template)
			pod.Spec.Priority = new(int32(2))
			info := NewPodInfo(pod)
			c := compile(s, info, profile)
			before := c.decide(s, info, Seed{}, false)
			verdicts := append([]NodeVerdict(nil), before.Verdicts...)
			for n := range s.All() {
				found, v := pre.try(Attempt{Snapshot: s, Pod: info, Profile: profile, Decision: &before}, n, nil)
				if v != nil && v.Err == nil {
					continue
				}
				// Without the victims the pod must fit, when all is looked at anew.
				var gone []types.UID
				for _, p := range found.victims {
					gone = append(gone, p.Pod.UID)
				}
				if v, by := compile(s.Without(n.Name(), gone...), info, profile).ask(s.Without(n.Name(), gone...).Node(n.Name())); v != nil {
					t.Errorf("seed %d, template %d: without %d pods node %s is still rejected by %s", seed, template, len(gone), n.Name(), by)
				}
			}
			after := c.decide(s, info, Seed{}, false)
			if after.Node != before.Node || after.Score != before.Score || fmt.Sprint(after.Verdicts) != fmt.Sprint(verdicts) {
				t.Errorf("seed %d, template %d: %q %v before, %q %v after", seed, template, before.Node, verdicts, after.Node, after.Verdicts)
			}
		}
	}
}

// crowdState is a cluster with ten pods on each node, a few of which want something of others.
func crowdState(nodes int) *State {
	s := benchState(nodes)
	for i := range nodes * 10 {
		template := 6
		switch i % 10 {
		case 0, 1:
			template = i % 10
		case 2:
			template = 4
		}
		p := crowdPod(i, template)
		s.AddPod(NewPodInfo(p), fmt.Sprintf("node-%d", i/10))
	}
	return s
}

var crowdTemplates = []struct {
	name     string
	template int
}{{"spread", 0}, {"antiaffinity", 2}, {"affinity", 3}, {"plain", 6}}

// BenchmarkCrowdFirst is a decision about the first pod of a template: all pods are looked at.
func BenchmarkCrowdFirst(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		state, profile := crowdState(nodes), benchProfile(b)
		for _, c := range crowdTemplates {
			b.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(b *testing.B) {
				pod := NewPodInfo(crowdPod(1<<20, c.template))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if d := Decide(state.Snapshot(), pod, profile, Seed{Start: i, Tie: uint64(i)}); d.Node == "" {
						b.Fatal(d.Message())
					}
				}
			})
		}
	}
}

// BenchmarkCrowdNext is a decision about one more pod of a template, which then counts where it goes.
func BenchmarkCrowdNext(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, c := range crowdTemplates {
			b.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(b *testing.B) {
				state, profile, kept := crowdState(nodes), benchProfile(b), newKept()
				b.ReportAllocs()
				at, last := 0, []types.UID{}
				for i := 0; b.Loop(); i++ {
					pod := crowdPod(1<<20+i, c.template)
					t := &try{Entry: &Entry{Pod: NewPodInfo(pod)}, profile: profile}
					t.info = t.Pod
					d := kept.decide(state.Snapshot(), t, Seed{Start: at, Tie: uint64(i)}, state.between)
					if d.Node == "" {
						b.Fatal(d.Message())
					}
					at = (at + d.Seen) % d.Total
					state.AddPod(t.info, d.Node)
					if last = append(last, pod.UID); len(last) > nodes/2 { // the cluster does not fill up
						state.RemovePod(last[0])
						last = last[1:]
					}
				}
			})
		}
	}
}

// BenchmarkPreempt looks for room in a cluster that is full of lesser pods.
func BenchmarkPreempt(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			state, profile := crowdState(nodes), benchProfile(b)
			pod := crowdPod(1<<20, 2)
			pod.Spec.Priority = new(int32(10))
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *state.Snapshot().At(0).Node.Status.Allocatable.Cpu()
			info, s := NewPodInfo(pod), state.Snapshot()
			pre := &preemption{args: PreemptionArgs{10, 100}, evictor: newEvictor(Deps{}), nobody: No("nobody"), useless: No("useless")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d := Decide(s, info, profile, Seed{Tie: uint64(i)})
				if all, _ := pre.candidates(Attempt{Snapshot: s, Pod: info, Profile: profile, Decision: &d}); d.Node != "" || len(all) == 0 {
					b.Fatal("nobody to preempt")
				}
			}
		})
	}
}

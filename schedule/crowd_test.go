package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/framework/frameworktest"
	"proa.dev/schedule/plugins/preemption"
	"proa.dev/schedule/podqueue"
)

// crowdPod returns a Pod of one of seven templates, with different spread constraints, affinity and anti-affinity to
// each other.
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
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "five", UID: "five",
			Controller: new(true)}}
	case 4:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(5, zone)},
		}}
	}
	return p
}

// TestUpdatedPluginsDecideLikeNewOnes compares decisions with prepared plugins that were updated by Pod changes to decisions with
// newly prepared plugins: they must be the same.
func TestUpdatedPluginsDecideLikeNewOnes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		objects := frameworktest.Objects{}
		objects.Put(gr.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "five", UID: "five"},
			Spec: appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "5"}},
			}})
		state, prepared := framework.NewState(objects), newPreparedPods()
		for i := range 3 + rng.IntN(10) {
			state.SetNode(benchNode(i))
		}
		profiles, err := Config{}.profiles(framework.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		profile, placed := &profiles[0], []types.UID{}
		for i := range 300 {
			pod := crowdPod(i, rng.IntN(7))
			a := &attempt{Entry: &podqueue.Entry{Pod: framework.NewPodInfo(pod)}, profile: profile}
			a.info = a.Pod
			s, choice := state.Snapshot(), framework.Seed{Start: rng.IntN(100), Tie: rng.Uint64()}
			updated := prepared.decide(s, a, choice, state.ChangesBetween)
			fresh := Decide(s, framework.NewPodInfo(pod), profile, choice)
			if updated.Node != fresh.Node || updated.Score != fresh.Score || updated.Message() != fresh.Message() {
				t.Fatalf("seed %d, pod %d: updated %q %d %q, new %q %d %q", seed, i,
					updated.Node, updated.Score, updated.Message(), fresh.Node, fresh.Score, fresh.Message())
			}
			if updated.Node != "" {
				state.AddPod(a.info, updated.Node)
				placed = append(placed, pod.UID)
			}
			switch at := rng.IntN(len(placed) + 1); {
			case at == len(placed):
			case rng.IntN(3) == 0:
				state.RemovePod(placed[at])
				placed = append(placed[:at], placed[at+1:]...)
			case rng.IntN(10) == 0: // an image is pulled to a node
				n := state.Snapshot().At(rng.IntN(state.Snapshot().Len())).Node.DeepCopy()
				n.Status.Images = []corev1.ContainerImage{{Names: []string{"regisa.k8s.io/pause:3.10"}, SizeBytes: 1 << 30}}
				state.SetNode(n)
			case rng.IntN(20) == 0: // a node moves to another zone
				n := state.Snapshot().At(rng.IntN(state.Snapshot().Len())).Node.DeepCopy()
				n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", rng.IntN(4))
				state.SetNode(n)
			}
			waits := framework.NewPodInfo(crowdPod(1000+i, rng.IntN(7)))
			waits.Pod.Spec.Priority = new(int32(rng.IntN(2)))
			state.Nominate(state.Snapshot().At(0).Name(), []*framework.PodInfo{waits})
		}
	}
}

// TestPreemptionDryRunChangesNothing finds preemption victims for Pods, and checks that decisions are the same before and after.
func TestPreemptionDryRunChangesNothing(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 2))
		state := benchState(4)
		profiles, err := Config{}.profiles(framework.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		profile := &profiles[0]
		for i := range 60 {
			p := crowdPod(i, rng.IntN(7))
			p.Spec.Priority = new(int32(rng.IntN(3)))
			state.AddPod(framework.NewPodInfo(p), state.Snapshot().At(rng.IntN(4)).Name())
		}
		s := state.Snapshot()
		pre := preemption.NewPreemptor(preemption.Arguments{Percentage: 10, Absolute: 100}, framework.Deps{})
		for template := range 7 {
			pod := crowdPod(1000, template)
			pod.Spec.Priority = new(int32(2))
			info := framework.NewPodInfo(pod)
			c := preparePod(s, info, profile)
			before := c.decide(s, info, framework.Seed{}, false)
			rejections := append([]framework.NodeRejection(nil), before.Rejections...)
			for n := range s.All() {
				found, r := pre.FindVictims(framework.PostFilterInput{Snapshot: s, Pod: info, Profile: profile, Decision: &before}, n, nil)
				if r != nil && r.Err == nil {
					continue
				}
				// Without the victims the Pod must fit, with newly prepared plugins.
				var victims []types.UID
				for _, p := range found.Victims {
					victims = append(victims, p.Pod.UID)
				}
				if r, by := preparePod(s.Without(n.Name(), victims...), info,
					profile).filterUncached(s.Without(n.Name(), victims...).Node(n.Name())); r != nil {
					t.Errorf("seed %d, template %d: without %d Pods node %s is still rejected by %s", seed, template, len(victims),
						n.Name(), by)
				}
			}
			after := c.decide(s, info, framework.Seed{}, false)
			if after.Node != before.Node || after.Score != before.Score || fmt.Sprint(after.Rejections) != fmt.Sprint(rejections) {
				t.Errorf("seed %d, template %d: %q %v before, %q %v after", seed, template, before.Node, rejections, after.Node,
					after.Rejections)
			}
		}
	}
}

// crowdState returns a cluster with ten Pods on each node, some of them with affinity or spread constraints.
func crowdState(nodes int) *framework.State {
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
		s.AddPod(framework.NewPodInfo(p), fmt.Sprintf("node-%d", i/10))
	}
	return s
}

var crowdTemplates = []struct {
	name     string
	template int
}{{"spread", 0}, {"antiaffinity", 2}, {"affinity", 3}, {"plain", 6}}

// BenchmarkCrowdFirst measures the decision about the first Pod of a template, which counts all Pods.
func BenchmarkCrowdFirst(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		state, profile := crowdState(nodes), benchProfile(b)
		for _, c := range crowdTemplates {
			b.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(b *testing.B) {
				pod := framework.NewPodInfo(crowdPod(1<<20, c.template))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if d := Decide(state.Snapshot(), pod, profile, framework.Seed{Start: i, Tie: uint64(i)}); d.Node == "" {
						b.Fatal(d.Message())
					}
				}
			})
		}
	}
}

// BenchmarkCrowdNext measures the decision about another Pod of a template, and adding it to its node.
func BenchmarkCrowdNext(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, c := range crowdTemplates {
			b.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(b *testing.B) {
				state, profile, prepared := crowdState(nodes), benchProfile(b), newPreparedPods()
				b.ReportAllocs()
				at, last := 0, []types.UID{}
				for i := 0; b.Loop(); i++ {
					pod := crowdPod(1<<20+i, c.template)
					t := &attempt{Entry: &podqueue.Entry{Pod: framework.NewPodInfo(pod)}, profile: profile}
					t.info = t.Pod
					d := prepared.decide(state.Snapshot(), t, framework.Seed{Start: at, Tie: uint64(i)}, state.ChangesBetween)
					if d.Node == "" {
						b.Fatal(d.Message())
					}
					at = (at + d.Examined) % d.Total
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

// BenchmarkPreempt measures finding preemption candidates in a cluster full of Pods with lower priority.
func BenchmarkPreempt(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			state, profile := crowdState(nodes), benchProfile(b)
			pod := crowdPod(1<<20, 2)
			pod.Spec.Priority = new(int32(10))
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *state.Snapshot().At(0).Node.Status.Allocatable.Cpu()
			info, s := framework.NewPodInfo(pod), state.Snapshot()
			pre := preemption.NewPreemptor(preemption.Arguments{Percentage: 10, Absolute: 100}, framework.Deps{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d := Decide(s, info, profile, framework.Seed{Tie: uint64(i)})
				if all, _ := pre.FindCandidates(framework.PostFilterInput{Snapshot: s, Pod: info, Profile: profile,
					Decision: &d}); d.Node != "" || len(all) == 0 {
					b.Fatal("no preemption candidate")
				}
			}
		})
	}
}

package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// TestKeptDecidesAsAnew lets pods and nodes come, go and change, and wants the decisions about equal pods to be the very ones
// that are made without knowing anything.
func TestKeptDecidesAsAnew(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			plugins, err := assemble(nil, nil, Deps{})
			if err != nil {
				t.Fatal(err)
			}
			profile := &Profile{Name: corev1.DefaultSchedulerName, Plugins: append(plugins, crowding())}
			state, kept := NewState(nil), newKept()
			var there []types.UID
			for step := range 400 {
				switch r.IntN(10) {
				case 0:
					n := benchNode(r.IntN(150))
					n.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(int64(1+r.IntN(4)), resource.DecimalSI)
					n.Spec.Unschedulable = r.IntN(8) == 0
					if r.IntN(4) == 0 {
						n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
					}
					if r.IntN(8) == 0 {
						n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.k8s.io/pause:3.10"}, SizeBytes: 1 << 30}}
					}
					state.SetNode(n)
				case 1:
					if r.IntN(4) == 0 {
						state.RemoveNode(fmt.Sprintf("node-%d", r.IntN(150)))
					}
				case 2:
					if len(there) > 0 {
						state.RemovePod(there[r.IntN(len(there))])
					}
				default:
					pod := benchPod(step)
					pod.Labels["app"] = fmt.Sprint("app-", r.IntN(3))
					pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(500*(1+len(pod.Labels["app"])%2)), resource.DecimalSI)
					info := NewPodInfo(pod)
					s, how := state.Snapshot(), Seed{Start: r.IntN(1000), Tie: r.Uint64()}
					want := Decide(s, info, profile, how)
					got := kept.decide(s, &try{Entry: &Entry{}, info: info, profile: profile}, how, state.between)
					if got.Node != want.Node || got.Score != want.Score || got.Seen != want.Seen || got.Fits != want.Fits || got.Message() != want.Message() {
						t.Fatalf("step %d: got %q %d of %d/%d %q, want %q %d of %d/%d %q", step, got.Node, got.Score, got.Fits, got.Seen, got.Message(),
							want.Node, want.Score, want.Fits, want.Seen, want.Message())
					}
					if got.Node != "" {
						state.AddPod(info, got.Node)
						there = append(there, pod.UID)
					}
				}
			}
		})
	}
}

// crowding is a plugin that counts pods of the same app everywhere: at most five on nodes of one zone more than in another,
// and better where there are fewer. It keeps its counts by being told.
func crowding() Plugin {
	full := No("zone(s) had too many")
	return Plugin{Name: "Crowding", Weight: 2, Prepare: func(s *Snapshot, p *PodInfo) Prepared {
		app, count := p.Pod.Labels["app"], map[string]int64{}
		for n := range s.All() {
			for _, q := range n.Pods {
				if q.Pod.Labels["app"] == app {
					count[zone(n.Node)]++
				}
			}
		}
		return Prepared{
			Reuse: WhileTold,
			Update: func(n *NodeInfo, q *PodInfo, by int) bool {
				if q.Pod.Labels["app"] == app {
					count[zone(n.Node)] += int64(by)
				}
				return true
			},
			Filter: func(n *NodeInfo) *Verdict {
				for _, c := range count {
					if count[zone(n.Node)] > c+5 {
						return full
					}
				}
				return nil
			},
			Score:     func(n *NodeInfo) int64 { return count[zone(n.Node)] },
			Normalize: func(_ []*NodeInfo, scores []int64) { spread(scores, true) },
		}
	}}
}

// TestSnapshotStays wants a snapshot to be the same whatever happens after it was taken.
func TestSnapshotStays(t *testing.T) {
	state := benchState(130)
	var shots []*Snapshot
	var texts []string
	text := func(s *Snapshot) string {
		out := ""
		for n := range s.All() {
			out += fmt.Sprintf("%s %d %d %v", n.Name(), n.Requested.CPU, len(n.Pods), n.Ports)
			for _, p := range n.Pods {
				out += " " + p.Pod.Name
			}
			out += "\n"
		}
		return out
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		s := state.Snapshot()
		shots, texts = append(shots, s), append(texts, text(s))
		node := fmt.Sprintf("node-%d", r.IntN(10))
		switch r.IntN(12) {
		case 0:
			state.RemovePod(types.UID(fmt.Sprintf("uid-%d", r.IntN(i+1))))
		case 1:
			state.RemoveNode(node)
		case 2:
			state.SetNode(benchNode(r.IntN(130)))
		default:
			pod := benchPod(i)
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(i)}}
			state.AddPod(NewPodInfo(pod), node)
		}
		old := shots[max(0, i-1-r.IntN(20))]
		derived := old.With(node, NewPodInfo(benchPod(1000+i)))
		if n := derived.Node(node); n != nil && len(derived.Without(node, n.Pods[len(n.Pods)-1].Pod.UID).Node(node).Pods) != len(old.Node(node).Pods) {
			t.Fatalf("with and without a pod is not the same as before")
		}
	}
	for i := range shots {
		if got := text(shots[i]); got != texts[i] {
			t.Fatalf("snapshot %d has changed:\n%s\nwas\n%s", i, got, texts[i])
		}
	}
}

// TestStateCountsAsAnew wants the numbers of nodes to be those of their pods.
func TestStateCountsAsAnew(t *testing.T) {
	state := benchState(5)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 500 {
		if r.IntN(3) == 0 {
			state.RemovePod(types.UID(fmt.Sprintf("uid-%d", r.IntN(i+1))))
		} else {
			pod := benchPod(r.IntN(i + 1))
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(r.IntN(500)), resource.DecimalSI)
			state.AddPod(NewPodInfo(pod), fmt.Sprintf("node-%d", r.IntN(7)))
		}
		if r.IntN(20) == 0 {
			state.SetNode(benchNode(r.IntN(7)))
		}
		if r.IntN(20) == 0 {
			state.RemoveNode(fmt.Sprintf("node-%d", r.IntN(7)))
		}
	}
	seen := 0
	for n := range state.Snapshot().All() {
		var cpu int64
		for _, p := range n.Pods {
			cpu += p.Requests.CPU
			if on, _ := state.Home(p.Pod.UID); on != n.Name() {
				t.Errorf("%s is on %s, its home is %q", p.Pod.Name, n.Name(), on)
			}
			seen++
		}
		if n.Requested.CPU != cpu {
			t.Errorf("%s: %d requested, its pods ask for %d", n.Name(), n.Requested.CPU, cpu)
		}
	}
	if seen == 0 {
		t.Error("no pods are left")
	}
}

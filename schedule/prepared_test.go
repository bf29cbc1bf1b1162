package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins"
	"proa.dev/schedule/podqueue"
)

// TestCachedDecisionsEqualNew adds, removes and changes Pods and nodes, and checks that decisions with cached results
// of equal Pods are the same as decisions without.
func TestCachedDecisionsEqualNew(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			chosen, err := plugins.Assemble(nil, nil, framework.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			profile := &framework.Profile{Name: corev1.DefaultSchedulerName, Plugins: append(chosen, zoneSpread())}
			state, prepared := framework.NewState(nil), newPreparedPods()
			var assigned []types.UID
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
					if len(assigned) > 0 {
						state.RemovePod(assigned[r.IntN(len(assigned))])
					}
				default:
					pod := benchPod(step)
					pod.Labels["app"] = fmt.Sprint("app-", r.IntN(3))
					pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(500*(1+
						len(pod.Labels["app"])%2)), resource.DecimalSI)
					info := framework.NewPodInfo(pod)
					s, choice := state.Snapshot(), framework.Seed{Start: r.IntN(1000), Tie: r.Uint64()}
					want := Decide(s, info, profile, choice)
					got := prepared.decide(s, &attempt{Entry: &podqueue.Entry{}, info: info, profile: profile}, choice,
						state.ChangesBetween)
					if got.Node != want.Node || got.Score != want.Score || got.Examined != want.Examined || got.Feasible != want.Feasible ||
						got.Message() != want.Message() {
						t.Fatalf("step %d: got %q %d of %d/%d %q, want %q %d of %d/%d %q", step, got.Node, got.Score, got.Feasible,
							got.Examined, got.Message(),
							want.Node, want.Score, want.Feasible, want.Examined, want.Message())
					}
					if got.Node != "" {
						state.AddPod(info, got.Node)
						assigned = append(assigned, pod.UID)
					}
				}
			}
		})
	}
}

// zoneSpread returns a plugin that counts Pods of the same app in each zone: it rejects zones with more than five Pods more than
// another zone, and prefers zones with fewer Pods. It is updated by Pod changes.
func zoneSpread() framework.Plugin {
	full := framework.Unschedulable("zone(s) had too many")
	return framework.Plugin{Name: "ZoneSpread", Weight: 2, Prepare: func(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
		app, count := p.Pod.Labels["app"], map[string]int64{}
		for n := range s.All() {
			for _, q := range n.Pods {
				if q.Pod.Labels["app"] == app {
					count[n.Node.Labels[corev1.LabelTopologyZone]]++
				}
			}
		}
		return framework.Prepared{
			Reuse: framework.ReuseWhileUpdated,
			Update: func(n *framework.NodeInfo, q *framework.PodInfo, by int) bool {
				if q.Pod.Labels["app"] == app {
					count[n.Node.Labels[corev1.LabelTopologyZone]] += int64(by)
				}
				return true
			},
			Filter: func(n *framework.NodeInfo) *framework.Rejection {
				for _, c := range count {
					if count[n.Node.Labels[corev1.LabelTopologyZone]] > c+5 {
						return full
					}
				}
				return nil
			},
			Score:     func(n *framework.NodeInfo) int64 { return count[n.Node.Labels[corev1.LabelTopologyZone]] },
			Normalize: func(_ []*framework.NodeInfo, scores []int64) { framework.NormalizeScores(scores, true) },
		}
	}}
}

// TestSnapshotIsImmutable checks that a snapshot does not change when the state does.
func TestSnapshotIsImmutable(t *testing.T) {
	state := benchState(130)
	var shots []*framework.Snapshot
	var texts []string
	text := func(s *framework.Snapshot) string {
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
			state.AddPod(framework.NewPodInfo(pod), node)
		}
		old := shots[max(0, i-1-r.IntN(20))]
		derived := old.With(node, framework.NewPodInfo(benchPod(1000+i)))
		if n := derived.Node(node); n != nil &&
			len(derived.Without(node, n.Pods[len(n.Pods)-1].Pod.UID).Node(node).Pods) != len(old.Node(node).Pods) {
			t.Fatalf("with and without a pod is not the same as before")
		}
	}
	for i := range shots {
		if got := text(shots[i]); got != texts[i] {
			t.Fatalf("snapshot %d has changed:\n%s\nwas\n%s", i, got, texts[i])
		}
	}
}

// TestStateSums checks that the requests of nodes are the sums of those of their Pods.
func TestStateSums(t *testing.T) {
	state := benchState(5)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 500 {
		if r.IntN(3) == 0 {
			state.RemovePod(types.UID(fmt.Sprintf("uid-%d", r.IntN(i+1))))
		} else {
			pod := benchPod(r.IntN(i + 1))
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(r.IntN(500)),
				resource.DecimalSI)
			state.AddPod(framework.NewPodInfo(pod), fmt.Sprintf("node-%d", r.IntN(7)))
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
			if on, _ := state.NodeOf(p.Pod.UID); on != n.Name() {
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

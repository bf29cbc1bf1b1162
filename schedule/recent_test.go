package schedule

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// TestRecentIsBounded checks that a Recent keeps the latest Pods, the chosen node among the scores of each, and says how many
// nodes are left out.
func TestRecentIsBounded(t *testing.T) {
	const nodes = 200
	profiles, err := Config{}.profiles(framework.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	state, prepared, recent := framework.NewState(nil), newPreparedPods(), NewRecent()
	for i := range nodes {
		state.SetNode(benchNode(i))
	}
	last := ""
	for i := range maxAttempts + 10 {
		a := &attempt{Entry: &podqueue.Entry{Pod: framework.NewPodInfo(benchPod(i)), Attempts: 1}, profile: &profiles[0], start: time.Now()}
		a.info = a.Pod
		d := prepared.decide(state.Snapshot(), a, framework.Seed{Start: i, Tie: uint64(i)}, state.ChangesBetween)
		recent.add(a, &d)
		recent.add(a, &d) // the same Pod again
		state.AddPod(a.info, d.Node)
		last = d.Node
	}
	for i, want := range map[int]bool{0: false, 9: false, 10: true, maxAttempts + 9: true} {
		if _, known := recent.Of(types.UID(fmt.Sprint("uid-", i))); known != want {
			t.Errorf("Pod %d: known %t", i, known)
		}
	}
	got, _ := recent.Of(types.UID(fmt.Sprint("uid-", maxAttempts+9)))
	if len(recent.ring) != maxAttempts || len(recent.at) != maxAttempts || got.Node != last || len(got.Nodes) != maxScored ||
		got.LeftOut != got.Feasible-maxScored || got.Feasible < maxScored || got.Nodes[0].Node != last {
		t.Errorf("%d in the ring, %d by UID, %+v", len(recent.ring), len(recent.at), got)
	}
	for _, n := range got.Nodes {
		sum := int64(0)
		for _, s := range n.Scores {
			sum += s.Score
		}
		if sum != n.Score || len(n.Scores) == 0 || n.Scores[len(n.Scores)-1].Plugin == podqueue.ExtenderPlugin {
			t.Errorf("%s has %d, but its plugins give %+v", n.Node, n.Score, n.Scores)
		}
	}
}

// TestRecentKeepsRejections checks that the reasons of rejected nodes are kept, and that their number is bounded.
func TestRecentKeepsRejections(t *testing.T) {
	profiles, err := Config{}.profiles(framework.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	state, recent := framework.NewState(nil), NewRecent()
	for i := range 150 {
		n := benchNode(i)
		n.Spec.Unschedulable = true
		state.SetNode(n)
	}
	a := &attempt{Entry: &podqueue.Entry{Pod: framework.NewPodInfo(benchPod(0)), Attempts: 3}, profile: &profiles[0], start: time.Now()}
	a.info = a.Pod
	d := newPreparedPods().decide(state.Snapshot(), a, framework.Seed{}, state.ChangesBetween)
	recent.add(a, &d)
	recent.setFailed("uid-0", d.Message())
	got, known := recent.Of("uid-0")
	if !known || got.Number != 3 || got.Node != "" || got.Message != d.Message() || len(got.Nodes) != maxRejected || got.LeftOut != 50 ||
		got.Nodes[0].Plugin != "NodeUnschedulable" || len(got.Nodes[0].Reasons) != 1 || got.Nodes[0].Scored {
		t.Errorf("%+v", got)
	}
}

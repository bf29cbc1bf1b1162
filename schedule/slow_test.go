package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// TestSlowAttemptsEnd tries a Pod for which a plugin needs a second a node: the search ends in time, and after some such attempts the
// Pod is set aside, while others are tried.
func TestSlowAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		profile := &framework.Profile{Name: corev1.DefaultSchedulerName, Plugins: []framework.Plugin{{
			Name: "Slow", Prepare: func(*framework.Snapshot, *framework.PodInfo) framework.Prepared {
				return framework.Prepared{Filter: func(*framework.NodeInfo) *framework.Rejection {
					time.Sleep(time.Second)
					return framework.Unresolvable("no")
				}}
			},
		}}}
		state, prepared := framework.NewState(nil), newPreparedPods()
		for i := range 1000 {
			state.SetNode(benchNode(i))
		}
		queue := podqueue.New(podqueue.Settings{InitialBackoff: time.Second, MaxBackoff: 10 * time.Second}, []framework.Profile{*profile})
		queue.Add(framework.NewPodInfo(benchPod(1)), time.Now())
		var wait time.Duration
		for n := 1; n <= setAsideAfter; n++ {
			var e *podqueue.Entry
			for e == nil {
				if e, wait = queue.Pop(time.Now()); e == nil {
					time.Sleep(min(wait, time.Second))
				}
			}
			begin := time.Now()
			a := &attempt{Entry: e, info: e.Pod, profile: profile, start: begin}
			d := prepared.decide(state.Snapshot(), a, framework.Seed{}, state.ChangesBetween)
			a.decision = &d
			if took := time.Since(begin); took > maxAttempt+2*time.Second || !errors.Is(d.Err, errTooSlow) {
				t.Fatalf("the attempt took %s: %v", took, d.Err)
			}
			a.countSlow()
			queue.Fail(e, nil, nil, time.Now())
		}
		asideAt := time.Now()
		queue.Add(framework.NewPodInfo(benchPod(2)), time.Now())
		if e, _ := queue.Pop(time.Now()); e == nil || e.Pod.Pod.Name != benchPod(2).Name {
			t.Error("another Pod is not tried")
		}
		for {
			if e, _ := queue.Pop(time.Now()); e != nil {
				break
			}
			queue.HandleEvent(podqueue.ClusterEvent{On: framework.NodeResource, Do: framework.Add}, time.Now())
			time.Sleep(time.Second)
		}
		if after := time.Since(asideAt); after < setAsideFor || after > setAsideFor+time.Minute {
			t.Errorf("set aside for %s", after)
		}
	})
}

// TestTermsAreBounded decides about Pods with as many terms as are evaluated, and with more.
func TestTermsAreBounded(t *testing.T) {
	t.Parallel()
	profiles, err := Config{}.profiles(framework.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	state := framework.NewState(nil)
	state.SetNode(benchNode(0))
	for _, c := range []struct {
		n    int
		want string
	}{{framework.MaxTerms, ""}, {framework.MaxTerms + 1, "1000 are the most"}} {
		affine, spread := benchPod(1), benchPod(2)
		affine.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
		for i := range c.n {
			key := fmt.Sprint("key", i)
			term := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": key}}}
			terms := &affine.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			*terms = append(*terms, term)
			spread.Spec.TopologySpreadConstraints = append(spread.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: term.LabelSelector})
		}
		for _, pod := range []*corev1.Pod{affine, spread} {
			d := Decide(state.Snapshot(), framework.NewPodInfo(pod), &profiles[0], framework.Seed{})
			if (c.want == "") != (d.Node != "") || !strings.Contains(d.Message(), c.want) {
				t.Errorf("%d terms: node %q, %s", c.n, d.Node, d.Message())
			}
		}
	}
}

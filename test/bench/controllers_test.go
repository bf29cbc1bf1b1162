package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/test/bench/benchrun"
)

func TestRolloutStateCounts(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	var s rolloutState
	pods := map[string]bool{}
	for i, x := range []struct {
		event       benchrun.Seen
		pods, bound int
	}{
		{benchrun.Seen{Kind: watch.Added, Object: pod("a", "")}, 1, 0},
		{benchrun.Seen{Kind: watch.Added, Object: pod("b", "n")}, 2, 1},
		{benchrun.Seen{Kind: watch.Modified, Object: pod("a", "n")}, 2, 2},
		{benchrun.Seen{Kind: watch.Added, Object: pod("a", "n")}, 2, 2}, // shown again by a new watch
		{benchrun.Seen{Kind: watch.Deleted, Object: pod("a", "n")}, 1, 1},
		{benchrun.Seen{Kind: watch.Deleted, Object: pod("a", "n")}, 1, 1},
		{benchrun.Seen{Kind: watch.Modified, Object: &appsv1.Deployment{Status: appsv1.DeploymentStatus{AvailableReplicas: 7}}}, 1, 1},
	} {
		s.apply(x.event, pods)
		if s.pods != x.pods || s.bound != x.bound {
			t.Errorf("after event %d: %d Pods, %d bound; want %d, %d", i, s.pods, s.bound, x.pods, x.bound)
		}
	}
	if s.status.AvailableReplicas != 7 {
		t.Errorf("%d available, want 7", s.status.AvailableReplicas)
	}
}

func TestScaleKeepsWorkloadsWhole(t *testing.T) {
	set := benchrun.Settings{Scale: 0.0001}
	for _, s := range scheduleSteps(set) {
		if s.Name == "" || s.Run == nil {
			t.Errorf("a workload without a name or a body: %+v", s)
		}
	}
	if got := set.Scaled(5000); got != 1 {
		t.Errorf("5000 scaled down to %d, want 1", got)
	}
	if got := (benchrun.Settings{Scale: 0.5}).Scaled(5000); got != 2500 {
		t.Errorf("half of 5000 is %d, want 2500", got)
	}
}

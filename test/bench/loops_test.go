package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestRolloutStateCounts(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	var s rolloutState
	pods := map[string]bool{}
	for i, x := range []struct {
		event       seen
		pods, bound int
	}{
		{seen{kind: watch.Added, object: pod("a", "")}, 1, 0},
		{seen{kind: watch.Added, object: pod("b", "n")}, 2, 1},
		{seen{kind: watch.Modified, object: pod("a", "n")}, 2, 2},
		{seen{kind: watch.Added, object: pod("a", "n")}, 2, 2}, // shown again by a new watch
		{seen{kind: watch.Deleted, object: pod("a", "n")}, 1, 1},
		{seen{kind: watch.Deleted, object: pod("a", "n")}, 1, 1},
		{seen{kind: watch.Modified, object: &appsv1.Deployment{Status: appsv1.DeploymentStatus{AvailableReplicas: 7}}}, 1, 1},
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
	set := settings{scale: 0.0001}
	for _, s := range scheduleSteps(set) {
		if s.name == "" || s.run == nil {
			t.Errorf("a workload without a name or a body: %+v", s)
		}
	}
	if got := set.scaled(5000); got != 1 {
		t.Errorf("5000 scaled down to %d, want 1", got)
	}
	if got := (settings{scale: 0.5}).scaled(5000); got != 2500 {
		t.Errorf("half of 5000 is %d, want 2500", got)
	}
}

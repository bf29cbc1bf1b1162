package nodebench

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/test/bench/benchrun"
)

func TestPodsAsSeen(t *testing.T) {
	p := &pods{events: make(chan benchrun.Seen, 10), all: map[string]*corev1.Pod{}, bound: map[string]time.Time{}}
	begin := time.Unix(1000, 0)
	after := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	pod := func(node string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	p.events <- benchrun.Seen{Kind: watch.Added, Object: pod("", corev1.ConditionFalse), At: after(1)}
	p.events <- benchrun.Seen{Kind: watch.Modified, Object: pod("n", corev1.ConditionFalse), At: after(2)}
	p.events <- benchrun.Seen{Kind: watch.Modified, Object: pod("n", corev1.ConditionTrue), At: after(3)}
	p.events <- benchrun.Seen{Kind: watch.Modified, Object: &appsv1.Deployment{Status: appsv1.DeploymentStatus{ReadyReplicas: 1}},
		At: after(4)}
	p.events <- benchrun.Seen{Kind: watch.Deleted, Object: pod("n", corev1.ConditionTrue), At: after(5)}

	at, err := p.until(t.Context(), time.Minute, func() bool { return p.count(isReady) == 1 })
	if err != nil || !at.Equal(after(3)) {
		t.Errorf("ready at %v, %v; want %v", at, err, after(3))
	}
	if !p.bound["a"].Equal(after(2)) {
		t.Errorf("bound at %v, want %v", p.bound["a"], after(2))
	}
	if at, err = p.until(t.Context(), time.Minute, func() bool { return p.ready == 1 }); err != nil || !at.Equal(after(4)) {
		t.Errorf("the Deployment is ready at %v, %v; want %v", at, err, after(4))
	}
	if at, err = p.until(t.Context(), time.Minute, p.empty); err != nil || !at.Equal(after(5)) {
		t.Errorf("gone at %v, %v; want %v", at, err, after(5))
	}
	if _, err = p.until(t.Context(), 0, func() bool { return false }); err == nil {
		t.Error("what never comes is waited for without an end")
	}
}

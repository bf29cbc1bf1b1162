package clusterstatus

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEvictions checks that Pods that were evicted lately are a problem, and no others.
func TestEvictions(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name, reason string, ago time.Duration) corev1.Pod {
		created := metav1.NewTime(now.Add(-24 * time.Hour))
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: created},
			Spec: corev1.PodSpec{NodeName: "a"},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "The node was low on resource: memory. ",
				Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}}}
	}
	old, other := pod("old", "Evicted", 2*time.Hour), pod("job", "DeadlineExceeded", time.Minute)
	for _, c := range []struct {
		pods []corev1.Pod
		want string
	}{
		{[]corev1.Pod{old, other}, ""},
		{[]corev1.Pod{old, pod("one", "Evicted", 5*time.Minute), other},
			"Pod shop/one was evicted from node a 5 minutes ago: The node was low on resource: memory"},
		{[]corev1.Pod{pod("first", "Evicted", 9*time.Minute), pod("last", "Evicted", 3*time.Minute)},
			"2 Pods were evicted in the last hour; the last one, shop/last from node a, 3 minutes ago: The node was low on resource: memory"},
	} {
		if got := evictions(c.pods, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestStaleNodes checks that a node that is called ready without renewing its Lease is a problem.
func TestStaleNodes(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := func(name string, ago time.Duration) coordinationv1.Lease {
		at := metav1.NewMicroTime(now.Add(-ago))
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
	}
	nodes := []nodeStatus{{Name: "well", Ready: true}, {Name: "stale", Ready: true}, {Name: "down"}}
	leases := []coordinationv1.Lease{lease("well", time.Minute), lease("stale", 10*time.Minute), lease("down", time.Hour),
		lease("gone", time.Hour), {}}
	got := staleNodes(nodes, leases, now)
	if len(got) != 1 || !strings.HasPrefix(got[0], "node stale is called ready, but has not renewed its Lease for 10 minutes") {
		t.Errorf("%q", got)
	}
}

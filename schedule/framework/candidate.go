package framework

import (
	"cmp"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// CompareImportance orders Pods by importance, the most important first: by priority, then by how long they have been
// running.
func CompareImportance(a, b *PodInfo) int {
	return cmp.Or(cmp.Compare(b.Priority(), a.Priority()), StartTime(a.Pod).Compare(StartTime(b.Pod)))
}

// StartTime returns when a Pod was started. A Pod that is not started yet counts as the youngest.
func StartTime(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime == nil {
		return time.Unix(math.MaxInt32, 0)
	}
	return pod.Status.StartTime.Time
}

// PreemptionCandidate is a node with the Pods that would have to be preempted on it, the most important first.
type PreemptionCandidate struct {
	Node    string
	Victims []*PodInfo
	// BudgetViolations is the number of victims whose eviction violates a PodDisruptionBudget.
	BudgetViolations int
}

package workload

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ToDelete chooses the n Pods whose deletion costs least. A Pod on a node with many active Pods of related is preferred, so
// that the remaining Pods are spread over nodes. related should contain the Pods themselves.
func ToDelete(pods, related []*corev1.Pod, n int, now time.Time) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	onNode := map[string]int{}
	for _, p := range related {
		if IsActive(p) {
			onNode[p.Spec.NodeName]++
		}
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		return cmp.Or(
			compareProgress(a, b),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]),
			compareAge(readySince(a), readySince(b), a, b, now),
			compareRestarts(a, b),
			compareAge(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now),
		)
	})
	return sorted[:n]
}

// CompareActive orders Pods by the cost of deleting them, the cheapest first: without a node, pending, not ready, ready
// for a shorter time, with more restarts, younger. Unlike ToDelete it considers neither nodes nor deletion costs.
func CompareActive(a, b *corev1.Pod) int {
	return cmp.Or(
		compareProgress(a, b),
		compareLatest(readySince(a), readySince(b)),
		compareRestarts(a, b),
		compareLatest(a.CreationTimestamp.Time, b.CreationTimestamp.Time),
	)
}

// compareProgress puts Pods first that have no node, then those not running, then those not ready.
func compareProgress(a, b *corev1.Pod) int {
	return cmp.Or(
		compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(progress(a), progress(b)),
		compareBool(IsReady(a), IsReady(b)),
	)
}

// compareBool puts false first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func progress(p *corev1.Pod) int {
	switch p.Status.Phase {
	case corev1.PodUnknown:
		return 1
	case corev1.PodRunning:
		return 2
	}
	return 0
}

// deletionCost returns the value of the annotation pod-deletion-cost; one that is not a valid number counts as 0.
func deletionCost(p *corev1.Pod) int32 {
	v := p.Annotations[corev1.PodDeletionCost]
	if v == "" || v[0] == '+' || v[0] == '0' && v != "0" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// compareAge puts the younger Pod first. Ages are compared by their powers of two; within one power the order is that of the
// random UIDs, so that Pods of similar age are equally likely to be deleted.
func compareAge(at, bt time.Time, a, b *corev1.Pod, now time.Time) int {
	if at.Equal(bt) {
		return 0
	}
	if at.IsZero() || bt.IsZero() {
		return compareLatest(at, bt)
	}
	return cmp.Or(cmp.Compare(powerOfTwo(now.Sub(at)), powerOfTwo(now.Sub(bt))), strings.Compare(string(a.UID), string(b.UID)))
}

func powerOfTwo(age time.Duration) int64 {
	if age <= 0 {
		return -1
	}
	return int64(math.Log2(float64(age)))
}

// compareLatest puts the later time first, and a zero time before all others.
func compareLatest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return compareBool(!a.IsZero(), !b.IsZero())
	}
	return b.Compare(a)
}

// compareRestarts puts the Pod first whose containers were restarted more often, and then the one whose sidecars were.
func compareRestarts(a, b *corev1.Pod) int {
	mostA, sidecarsA := mostRestarts(a)
	mostB, sidecarsB := mostRestarts(b)
	return cmp.Or(cmp.Compare(mostB, mostA), cmp.Compare(sidecarsB, sidecarsA))
}

func mostRestarts(p *corev1.Pod) (containers, sidecars int32) {
	for i := range p.Status.ContainerStatuses {
		containers = max(containers, p.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		if slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			sidecars = max(sidecars, s.RestartCount)
		}
	}
	return containers, sidecars
}

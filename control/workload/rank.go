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

// ToDelete chooses n of the Pods: those whose end costs least. Pods in related that are active and on the same node make
// a Pod a better choice, so that what is left is spread. The Pods themselves should be among them.
func ToDelete(pods, related []*corev1.Pod, n int, now time.Time) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	together := map[string]int{}
	for _, p := range related {
		if Active(p) {
			together[p.Spec.NodeName]++
		}
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		return cmp.Or(
			early(a, b),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(together[b.Spec.NodeName], together[a.Spec.NodeName]),
			byAge(readySince(a), readySince(b), a, b, now),
			restarts(a, b),
			byAge(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now),
		)
	})
	return sorted[:n]
}

// CompareActive orders Pods by what it costs to end them, the cheapest first: without a node, pending, not ready, ready
// for a shorter time, with more restarts, younger. It knows neither nodes nor costs; ToDelete does.
func CompareActive(a, b *corev1.Pod) int {
	return cmp.Or(
		early(a, b),
		latest(readySince(a), readySince(b)),
		restarts(a, b),
		latest(a.CreationTimestamp.Time, b.CreationTimestamp.Time),
	)
}

// early puts Pods first that have not got far: no node, not running, not ready.
func early(a, b *corev1.Pod) int {
	return cmp.Or(
		compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(progress(a), progress(b)),
		compareBool(Ready(a), Ready(b)),
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

// deletionCost is what an annotation says; anything that is not a plain number counts as 0.
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

// byAge puts the younger first. Ages are compared by their powers of two: within one power the order is that of
// the UIDs, which is as good as chance, so that old and somewhat younger Pods go alike.
func byAge(at, bt time.Time, a, b *corev1.Pod, now time.Time) int {
	if at.Equal(bt) {
		return 0
	}
	if at.IsZero() || bt.IsZero() {
		return latest(at, bt)
	}
	return cmp.Or(cmp.Compare(power(now.Sub(at)), power(now.Sub(bt))), strings.Compare(string(a.UID), string(b.UID)))
}

func power(age time.Duration) int64 {
	if age <= 0 {
		return -1
	}
	return int64(math.Log2(float64(age)))
}

// latest puts the later time first, and an unknown one before all.
func latest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return compareBool(!a.IsZero(), !b.IsZero())
	}
	return b.Compare(a)
}

// restarts puts the Pod first whose containers had to be restarted more often, and then the one whose sidecars had to.
func restarts(a, b *corev1.Pod) int {
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

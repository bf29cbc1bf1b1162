package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
)

// maxPods is how many Pods one look makes or removes at most, so that a big Job does not hold up small ones.
const maxPods = 500

// manage brings the number of Pods to what is wanted. It either removes or creates; removing comes first.
func (l *look) manage() plan {
	if suspended(l.job) {
		return plan{remove: l.active}
	}
	want := l.wanted()
	if surplus := l.surplus(max(0, len(l.active)-want)); len(surplus) > 0 {
		return plan{remove: surplus[:min(len(surplus), maxPods)]}
	}
	lack := want - len(l.active)
	if waitsForEnd(l.job) {
		lack -= int(l.terminating)
	}
	if lack <= 0 {
		return plan{}
	}
	lack = min(lack, maxPods)
	perIndex := l.job.Spec.BackoffLimitPerIndex != nil
	if wait := l.backoff.remaining(l.now); wait > 0 && !perIndex {
		return plan{again: wait}
	}
	if !indexed(l.job) {
		return plan{create: l.newPods(lack)}
	}
	next := l.open().missing(lack, l.completions())
	var wait time.Duration
	if perIndex {
		next, wait = l.dueIndexes(next)
	}
	return plan{create: l.newIndexedPods(next), again: wait}
}

// wanted is how many Pods should be active.
func (l *look) wanted() int {
	parallelism := int(*l.job.Spec.Parallelism)
	switch {
	case l.job.Spec.Completions != nil:
		return max(0, min(l.completions()-int(l.succeeded), parallelism))
	case l.succeeded > 0: // a work queue that is empty: who still runs may finish
		return len(l.active)
	}
	return parallelism
}

// surplus chooses active Pods to remove: n at least, and in a Job with indexes those with the index of another, or
// none.
func (l *look) surplus(n int) []*corev1.Pod {
	left := slices.Clone(l.active)
	slices.SortStableFunc(left, workload.CompareActive)
	var out []*corev1.Pod
	if indexed(l.job) {
		seen := map[int]bool{}
		for _, p := range slices.Backward(left) { // the best of an index stays
			if i := indexOf(p); !l.indexValid(p) || seen[i] {
				out = append(out, p)
			} else {
				seen[i] = true
			}
		}
		left = slices.DeleteFunc(left, func(p *corev1.Pod) bool { return slices.Contains(out, p) })
	}
	if n > len(out) {
		out = append(out, left[:n-len(out)]...)
	}
	return out
}

// open are the indexes that need no Pod.
func (l *look) open() indexes {
	busy := l.active
	if waitsForEnd(l.job) {
		busy = slices.Concat(busy, keep(l.pods, workload.Terminating))
	}
	return merge(l.done, l.lost, indexesOf(busy))
}

// dueIndexes are those whose back-off is over; if there is none, how long it takes until one is.
func (l *look) dueIndexes(all []int) (due []int, wait time.Duration) {
	for _, i := range all {
		left := time.Duration(0)
		if last := l.kept[i]; last != nil {
			left = backoff{int(allFailures(last)) + 1, finishedAt(last)}.remaining(l.now)
		}
		if left == 0 {
			due = append(due, i)
		} else {
			wait = sooner(wait, left)
		}
	}
	return due, wait
}

// allFailures counts the earlier failures of a Pod's index, those that were ignored too.
func allFailures(p *corev1.Pod) int32 {
	return failures(p, batchv1.JobIndexFailureCountAnnotation) + failures(p, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

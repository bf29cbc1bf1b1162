package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
)

// maxPods bounds the Pods that one reconcile creates or deletes, so that a large Job does not delay others.
const maxPods = 500

// manage plans the creation or deletion of Pods to reach the wanted number. It does not do both; deletion comes first.
func (l *jobState) manage() plan {
	if isSuspended(l.job) {
		return plan{remove: l.active}
	}
	want := l.wantedActive()
	if surplus := l.surplus(max(0, len(l.active)-want)); len(surplus) > 0 {
		return plan{remove: surplus[:min(len(surplus), maxPods)]}
	}
	missing := want - len(l.active)
	if replacesAfterEnd(l.job) {
		missing -= int(l.terminating)
	}
	if missing <= 0 {
		return plan{}
	}
	missing = min(missing, maxPods)
	perIndex := l.job.Spec.BackoffLimitPerIndex != nil
	if wait := l.backoff.remaining(l.now); wait > 0 && !perIndex {
		return plan{again: wait}
	}
	if !isIndexed(l.job) {
		return plan{create: slices.Repeat([]int{noIndex}, missing)}
	}
	next := l.indexesWithoutNeed().missing(missing, l.completions())
	var wait time.Duration
	if perIndex {
		next, wait = l.dueIndexes(next)
	}
	return plan{create: next, again: wait}
}

// wantedActive returns how many Pods should be active.
func (l *jobState) wantedActive() int {
	parallelism := int(*l.job.Spec.Parallelism)
	switch {
	case l.job.Spec.Completions != nil:
		return max(0, min(l.completions()-int(l.succeeded), parallelism))
	case l.succeeded > 0: // a work queue that is empty: running Pods may finish
		return len(l.active)
	}
	return parallelism
}

// surplus returns active Pods to delete: at least n and, in an indexed Job, all with an invalid or duplicate index.
func (l *jobState) surplus(n int) []*corev1.Pod {
	left := slices.Clone(l.active)
	slices.SortStableFunc(left, workload.CompareActive)
	var out []*corev1.Pod
	if isIndexed(l.job) {
		seen := map[int]bool{}
		var kept []*corev1.Pod
		for _, p := range slices.Backward(left) { // the last one of an index is kept
			if i := indexOf(p); !l.indexValid(p) || seen[i] {
				out = append(out, p)
			} else {
				seen[i] = true
				kept = append(kept, p)
			}
		}
		slices.Reverse(kept)
		left = kept
	}
	if n > len(out) {
		out = append(out, left[:n-len(out)]...)
	}
	return out
}

// indexesWithoutNeed returns the indexes that need no Pod.
func (l *jobState) indexesWithoutNeed() indexes {
	occupied := l.active
	if replacesAfterEnd(l.job) {
		occupied = slices.Concat(occupied, filter(l.pods, workload.IsTerminating))
	}
	return merge(l.succeededIndexes, l.failedIndexes, indexesOf(occupied))
}

// dueIndexes returns the indexes whose back-off is over, and the time until the next one is.
func (l *jobState) dueIndexes(all []int) (due []int, wait time.Duration) {
	for _, i := range all {
		left := time.Duration(0)
		if last := l.keptForReplacement[i]; last != nil {
			left = backoff{int(totalFailures(last)) + 1, finishedAt(last)}.remaining(l.now)
		}
		if left == 0 {
			due = append(due, i)
		} else {
			wait = sooner(wait, left)
		}
	}
	return due, wait
}

// totalFailures returns the number of earlier failures of a Pod's index, including ignored ones.
func totalFailures(p *corev1.Pod) int32 {
	return failureCount(p, batchv1.JobIndexFailureCountAnnotation) + failureCount(p, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

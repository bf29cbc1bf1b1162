package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/control/lib/workload"
)

// maxUncounted bounds the list of uncounted Pods, to about 20 KB.
const maxUncounted = 500

// updateStatus is the second step of a reconcile, after Pods were created and deleted. It updates the status, and lists the Pods that
// have finished as uncounted. It returns the Pods whose finalizers can be removed once the status is stored.
func (l *jobState) updateStatus(created int, removed []*corev1.Pod) []*corev1.Pod {
	l.running += int32(created - len(removed))
	l.terminating += int32(len(removed))
	l.ready -= int32(len(filter(removed, workload.IsReady)))
	switch {
	case l.end == nil:
		l.updateCompletion()
	case len(removed) != len(l.active): // some could not be deleted, so it is too early to end the Job
		l.end = nil
	}
	s := &l.job.Status
	s.Active, s.Ready, s.Terminating = l.running, new(l.ready), new(l.terminating)
	l.countUntracked()
	release := l.listUncounted()
	l.announce()
	l.finalize()
	return release
}

// updateCompletion ends the Job if it has reached its completions; otherwise it updates the condition Suspended.
func (l *jobState) updateCompletion() {
	spec := &l.job.Spec
	reached := l.succeeded > 0
	if spec.Completions != nil {
		reached = l.succeeded >= *spec.Completions
	}
	switch {
	case reached && l.running == 0:
		l.end = newCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods", l.now)
	case !l.managed:
	case isSuspended(l.job):
		if setCondition(&l.job.Status, newCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", l.now)) {
			l.job.Status.StartTime = nil
			l.events = append(l.events, event{corev1.EventTypeNormal, "Suspended", "Job suspended"})
		}
	default:
		if setCondition(&l.job.Status, newCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", l.now)) {
			// The time while it was suspended does not count towards the active deadline.
			l.job.Status.StartTime = new(metav1.NewTime(l.now))
			l.events = append(l.events, event{corev1.EventTypeNormal, "Resumed", "Job resumed"})
		}
	}
}

// listUncounted adds Pods that have finished to the list of uncounted ones, or their indexes to the completed ones.
func (l *jobState) listUncounted() (release []*corev1.Pod) {
	s := &l.job.Status
	list := s.UncountedTerminatedPods
	indexes := 0
	for _, p := range l.pods {
		if !l.tracked.Has(p.UID) || !l.mayRemoveFinalizer(p) {
			continue
		}
		succeeded, failed := l.mustList(p)
		if (succeeded || failed) && indexes+len(list.Succeeded)+len(list.Failed) >= maxUncounted {
			l.uncountedFull = true // the next reconcile continues
			continue
		}
		switch {
		case succeeded && isIndexed(l.job):
			indexes++ // the index in the status is enough to count it once
		case succeeded:
			list.Succeeded = append(list.Succeeded, p.UID)
		case failed:
			list.Failed = append(list.Failed, p.UID)
		}
		release = append(release, p)
	}
	if isIndexed(l.job) {
		s.Succeeded, s.CompletedIndexes, s.FailedIndexes = int32(l.succeededIndexes.count()), l.succeededIndexes.String(), nil
		if l.job.Spec.BackoffLimitPerIndex != nil {
			s.FailedIndexes = new(l.failedIndexes.String())
		}
	}
	return release
}

// mustList reports whether a Pod has to be listed as succeeded or as failed, and is not yet.
func (l *jobState) mustList(p *corev1.Pod) (succeeded, failed bool) {
	switch {
	case l.namedFailed.Has(p.UID) || l.namedSucceeded.Has(p.UID) || !l.indexValid(p):
	case p.Status.Phase != corev1.PodSucceeded:
		failed = l.failedForEnd(p) && applyFailurePolicy(l.job.Spec.PodFailurePolicy, p).counts()
	case isIndexed(l.job):
		succeeded = !l.completedIndexes.has(indexOf(p))
	default:
		succeeded = true
	}
	return succeeded, failed
}

// failedForEnd reports whether a Pod counts as failed, given how the Job ends. In a Job that fails, all Pods that have not
// succeeded count as failed. In one whose success policy is met, running Pods are deleted and do not count as failed.
func (l *jobState) failedForEnd(p *corev1.Pod) bool {
	switch {
	case l.end == nil:
		return l.hasFailed(p)
	case l.end.Type != batchv1.JobSuccessCriteriaMet:
		return true
	case l.end.Reason == batchv1.JobReasonSuccessPolicy:
		return p.Status.Phase == corev1.PodFailed
	}
	return l.hasFailed(p)
}

// mayRemoveFinalizer reports whether the finalizer of a Pod can be removed once the status accounts for it.
func (l *jobState) mayRemoveFinalizer(p *corev1.Pod) bool {
	switch {
	case l.job.DeletionTimestamp != nil, l.end != nil, p.Status.Phase == corev1.PodSucceeded:
		return true
	case !l.hasFailed(p):
		return false
	}
	last := l.keptForReplacement[indexOf(p)]
	return last == nil || last.UID != p.UID
}

// announce adds the condition with which the Job is about to end to the status, and reports whether it was not there yet.
func (l *jobState) announce() bool {
	if l.end == nil || l.end.Type == batchv1.JobFailed { // it was announced as FailureTarget before
		return false
	}
	c := findCondition(&l.job.Status, l.end.Type)
	if c != nil && c.Status == corev1.ConditionTrue {
		return false
	}
	l.job.Status.Conditions = append(l.job.Status.Conditions, *l.end)
	return true
}

// finalize turns the announced condition into the one that the Job gets when its Pods are counted: Complete or Failed.
func (l *jobState) finalize() {
	if l.end == nil {
		return
	}
	end := batchv1.JobFailed
	if l.end.Type == batchv1.JobSuccessCriteriaMet {
		end = batchv1.JobComplete
	}
	l.end = newCondition(end, corev1.ConditionTrue, l.end.Reason, l.end.Message, l.now)
}

// countUntracked adds listed Pods that are no longer tracked to the counters.
func (l *jobState) countUntracked() {
	s := &l.job.Status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	count := func(list *[]types.UID, counter *int32) {
		var left []types.UID
		for _, uid := range *list {
			if l.tracked.Has(uid) {
				left = append(left, uid)
			} else {
				*counter++
			}
		}
		*list = left
	}
	count(&s.UncountedTerminatedPods.Succeeded, &s.Succeeded)
	count(&s.UncountedTerminatedPods.Failed, &s.Failed)
}

// finish is the third step of a reconcile: it counts the Pods whose finalizers were removed, and finishes the Job if none is
// left. stored is the Job after the second step, and all is true if every finalizer was removed. It returns the Events to
// record once the status is stored.
func (l *jobState) finish(stored *batchv1.Job, released sets.Set[types.UID], all bool) []event {
	l.job = stored
	l.tracked = l.tracked.Difference(released)
	l.countUntracked()
	list := stored.Status.UncountedTerminatedPods
	if l.end == nil || !all || l.uncountedFull || l.terminating > 0 || len(list.Succeeded)+len(list.Failed) > 0 {
		return nil
	}
	setCondition(&stored.Status, l.end)
	if l.end.Type != batchv1.JobComplete {
		return []event{{corev1.EventTypeWarning, l.end.Reason, l.end.Message}}
	}
	stored.Status.CompletionTime = new(l.end.LastTransitionTime)
	done := event{corev1.EventTypeNormal, "Completed", "Job completed"}
	if n := stored.Spec.Completions; n != nil && stored.Status.Succeeded > *n {
		return []event{{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"},
			done}
	}
	return []event{done}
}

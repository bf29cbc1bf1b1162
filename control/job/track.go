package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/control/workload"
)

// maxUncounted keeps the list of uncounted Pods below some 20 KB.
const maxUncounted = 500

// note is the second step of a look: created Pods are there and others have been removed. It writes into the status what is so
// now, and names the Pods that have finished as uncounted. It returns the Pods whose finalizers may go once that is stored.
func (l *look) note(created int, removed []*corev1.Pod) []*corev1.Pod {
	l.running += int32(created - len(removed))
	l.terminating += int32(len(removed))
	l.ready -= int32(len(keep(removed, workload.Ready)))
	switch {
	case l.end == nil:
		l.complete()
	case len(removed) != len(l.active): // some still run, so it is too early to count them
		l.end = nil
	}
	s := &l.job.Status
	s.Active, s.Ready, s.Terminating = l.running, new(l.ready), new(l.terminating)
	l.settle()
	release := l.name()
	l.announce()
	l.final()
	return release
}

// complete ends the Job if it has what it was to reach, or notes whether it is suspended.
func (l *look) complete() {
	spec := &l.job.Spec
	reached := l.succeeded > 0
	if spec.Completions != nil {
		reached = l.succeeded >= *spec.Completions
	}
	switch {
	case reached && l.running == 0:
		l.end = condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods", l.now)
	case !l.managed:
	case suspended(l.job):
		if set(&l.job.Status, condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", l.now)) {
			l.job.Status.StartTime = nil
			l.fresh = append(l.fresh, event{corev1.EventTypeNormal, "Suspended", "Job suspended"})
		}
	default:
		if set(&l.job.Status, condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", l.now)) {
			// The time while it was suspended is none that it was active.
			l.job.Status.StartTime = new(metav1.NewTime(l.now))
			l.fresh = append(l.fresh, event{corev1.EventTypeNormal, "Resumed", "Job resumed"})
		}
	}
}

// name puts Pods that have finished on the list of uncounted ones, or their indexes among the completed ones.
func (l *look) name() (release []*corev1.Pod) {
	s := &l.job.Status
	list := s.UncountedTerminatedPods
	indexes := 0
	for _, p := range l.pods {
		if !l.tracked.Has(p.UID) || !l.mayRelease(p) {
			continue
		}
		succeeded, failed := l.unnamed(p)
		if (succeeded || failed) && indexes+len(list.Succeeded)+len(list.Failed) >= maxUncounted {
			l.full = true // it waits for the next look
			continue
		}
		switch {
		case succeeded && indexed(l.job):
			indexes++ // which is enough to count it once
		case succeeded:
			list.Succeeded = append(list.Succeeded, p.UID)
		case failed:
			list.Failed = append(list.Failed, p.UID)
		}
		release = append(release, p)
	}
	if indexed(l.job) {
		s.Succeeded, s.CompletedIndexes, s.FailedIndexes = int32(l.done.count()), l.done.String(), nil
		if l.job.Spec.BackoffLimitPerIndex != nil {
			s.FailedIndexes = new(l.lost.String())
		}
	}
	return release
}

// unnamed says that a Pod has to be noted as succeeded or as failed, and is not yet.
func (l *look) unnamed(p *corev1.Pod) (succeeded, failed bool) {
	switch {
	case l.namedFailed.Has(p.UID) || l.namedSucceeded.Has(p.UID) || !l.indexValid(p):
	case p.Status.Phase != corev1.PodSucceeded:
		failed = l.failedForEnd(p) && judge(l.job.Spec.PodFailurePolicy, p).counts()
	case indexed(l.job):
		succeeded = !l.completed.has(indexOf(p))
	default:
		succeeded = true
	}
	return succeeded, failed
}

// failedForEnd says that a Pod counts as failed in view of how the Job ends. In a Job that fails, all that has not finished has failed. In one whose
// success policy is met the Pods that still run are removed, which is no failure of theirs.
func (l *look) failedForEnd(p *corev1.Pod) bool {
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

// mayRelease says that a Pod needs no tracking any more once it is noted.
func (l *look) mayRelease(p *corev1.Pod) bool {
	switch {
	case l.job.DeletionTimestamp != nil, l.end != nil, p.Status.Phase == corev1.PodSucceeded:
		return true
	case !l.hasFailed(p):
		return false
	}
	last := l.kept[indexOf(p)]
	return last == nil || last.UID != p.UID
}

// announce writes into the status that the Job is about to end, and says whether that is news.
func (l *look) announce() bool {
	if l.end == nil || l.end.Type == batchv1.JobFailed { // which was announced before
		return false
	}
	c := find(&l.job.Status, l.end.Type)
	if c != nil && c.Status == corev1.ConditionTrue {
		return false
	}
	l.job.Status.Conditions = append(l.job.Status.Conditions, *l.end)
	return true
}

// final turns the announcement into how the Job ends, once its Pods are let go.
func (l *look) final() {
	if l.end == nil {
		return
	}
	end := batchv1.JobFailed
	if l.end.Type == batchv1.JobSuccessCriteriaMet {
		end = batchv1.JobComplete
	}
	l.end = condition(end, corev1.ConditionTrue, l.end.Reason, l.end.Message, l.now)
}

// settle counts the named Pods that are tracked no more.
func (l *look) settle() {
	s := &l.job.Status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	take := func(list *[]types.UID, counter *int32) {
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
	take(&s.UncountedTerminatedPods.Succeeded, &s.Succeeded)
	take(&s.UncountedTerminatedPods.Failed, &s.Failed)
}

// count is the third step of a look: it counts the Pods whose finalizers went, and ends the Job if nothing is left. stored is the Job after the
// second step, and all says that no finalizer stayed that should have gone. It returns what to tell once the status is stored.
func (l *look) count(stored *batchv1.Job, released sets.Set[types.UID], all bool) []event {
	l.job = stored
	l.tracked = l.tracked.Difference(released)
	l.settle()
	list := stored.Status.UncountedTerminatedPods
	if l.end == nil || !all || l.full || l.terminating > 0 || len(list.Succeeded)+len(list.Failed) > 0 {
		return nil
	}
	set(&stored.Status, l.end)
	if l.end.Type != batchv1.JobComplete {
		return []event{{corev1.EventTypeWarning, l.end.Reason, l.end.Message}}
	}
	stored.Status.CompletionTime = new(l.end.LastTransitionTime)
	done := event{corev1.EventTypeNormal, "Completed", "Job completed"}
	if n := stored.Spec.Completions; n != nil && stored.Status.Succeeded > *n {
		return []event{{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"}, done}
	}
	return []event{done}
}

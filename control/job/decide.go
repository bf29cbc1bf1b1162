package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/duration"
)

// plan is what to do with the Pods of a Job.
type plan struct {
	// create are the indexes of the Pods to create, noIndex for those without one. Each Pod is as large as the template, and made when
	// it is written.
	create []int
	remove []*corev1.Pod
	// tracked is true if the Pods to delete count as failed: they keep the finalizer until the status accounts for them.
	// From other Pods the finalizer is removed first, so that they are never counted.
	tracked bool
	// again is the time until the Job must be reconciled without an event; 0 for never.
	again time.Duration
}

// decide is the first step of a reconcile: it plans what to do with the Pods of a Job that is not finished.
func decide(job *batchv1.Job, pods []*corev1.Pod, before *backoff, now time.Time) (*jobState, plan) {
	l := newJobState(job, pods, before, now)
	if job.Status.StartTime == nil && !isSuspended(job) {
		job.Status.StartTime = new(metav1.NewTime(now))
	}
	l.decideEnd()
	var p plan
	switch {
	case l.end != nil:
		p = plan{remove: l.active, tracked: true}
	case job.DeletionTimestamp == nil:
		p = l.manage()
		l.managed = true
	}
	if left := l.deadline(); l.end == nil && left > 0 {
		p.again = sooner(p.again, left)
	}
	return l, p
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// deadline returns the time until the active deadline of a Job; 0 if it has none.
func (l *jobState) deadline() time.Duration {
	s := &l.job.Spec
	if s.ActiveDeadlineSeconds == nil || l.job.Status.StartTime == nil || isSuspended(l.job) {
		return 0
	}
	return duration.FromSeconds(*s.ActiveDeadlineSeconds) - l.now.Sub(l.job.Status.StartTime.Time)
}

// decideEnd decides whether the Job ends. An end that is in the status is kept; failure takes precedence over success.
func (l *jobState) decideEnd() {
	s := &l.job.Status
	if c := findCondition(s, batchv1.JobSuccessCriteriaMet); c != nil && c.Status == corev1.ConditionTrue {
		l.end = c.DeepCopy()
	} else if c := findCondition(s, batchv1.JobFailureTarget); c != nil && c.Status == corev1.ConditionTrue {
		l.end = newCondition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message, l.now)
	}
	if l.end == nil {
		l.decideFailure()
	}
	if isIndexed(l.job) {
		l.decideIndexes()
	}
}

// fail makes the Job fail, unless it has ended otherwise.
func (l *jobState) fail(reason, message string) {
	if l.end == nil {
		l.end = newCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message, l.now)
	}
}

// decideFailure decides whether failures end the Job as a whole.
func (l *jobState) decideFailure() {
	spec := &l.job.Spec
	for _, p := range l.pods {
		if spec.PodFailurePolicy != nil && l.hasFailed(p) {
			if v := applyFailurePolicy(spec.PodFailurePolicy, p); v.message != "" {
				l.fail(batchv1.JobReasonPodFailurePolicy, v.message)
				return
			}
		}
	}
	switch {
	case l.failed > *spec.BackoffLimit || l.restartedTooOften():
		l.fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case spec.ActiveDeadlineSeconds != nil && l.job.Status.StartTime != nil && !isSuspended(l.job) && l.deadline() <= 0:
		l.fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	}
}

// restartedTooOften reports whether container restarts exceed the back-off limit of a Job whose Pods restart on failure.
func (l *jobState) restartedTooOften() bool {
	if l.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range l.pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for i := range p.Status.InitContainerStatuses {
			restarts += p.Status.InitContainerStatuses[i].RestartCount
		}
		for i := range p.Status.ContainerStatuses {
			restarts += p.Status.ContainerStatuses[i].RestartCount
		}
	}
	return restarts >= max(1, *l.job.Spec.BackoffLimit)
}

// decideIndexes computes which indexes have succeeded and failed, and decides whether that ends the Job.
func (l *jobState) decideIndexes() {
	spec, n := &l.job.Spec, l.completions()
	l.completedIndexes = parseIndexes(l.job.Status.CompletedIndexes, n)
	l.succeededIndexes = merge(l.completedIndexes, indexesOf(filter(l.pods, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && l.indexValid(p) && hasFinalizer(p)
	})))
	l.succeeded = int32(l.succeededIndexes.count())
	if spec.BackoffLimitPerIndex != nil {
		if text := l.job.Status.FailedIndexes; text != nil {
			l.failedIndexes = parseIndexes(*text, n)
		}
		l.failedIndexes = merge(l.failedIndexes, indexesOf(filter(l.pods, func(p *corev1.Pod) bool {
			return l.indexValid(p) && hasFinalizer(p) && l.failsIndex(p)
		})))
		switch failed := l.failedIndexes.count(); {
		case spec.MaxFailedIndexes != nil && failed > int(*spec.MaxFailedIndexes):
			l.fail(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
		case failed > 0 && failed+l.succeededIndexes.count() >= n:
			l.fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
		}
		l.keptForReplacement = l.keepForReplacement()
	}
	if message := successMessage(spec.SuccessPolicy, n, l.succeededIndexes); message != "" && l.end == nil {
		l.end = newCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, message, l.now)
	}
}

// failsIndex reports whether the failure of a Pod makes its index fail.
func (l *jobState) failsIndex(p *corev1.Pod) bool {
	if !l.hasFailed(p) {
		return false
	}
	v := applyFailurePolicy(l.job.Spec.PodFailurePolicy, p)
	return v.action == batchv1.PodFailurePolicyActionFailIndex ||
		v.counts() && failureCount(p, batchv1.JobIndexFailureCountAnnotation) >= *l.job.Spec.BackoffLimitPerIndex
}

// keepForReplacement returns the last failed Pod of each index that waits for a new one. It keeps its finalizer until then,
// because the new Pod continues the failure count in its annotations.
func (l *jobState) keepForReplacement() map[int]*corev1.Pod {
	settled := merge(l.succeededIndexes, l.failedIndexes, indexesOf(l.active))
	out := map[int]*corev1.Pod{}
	for _, p := range l.newlyFinished(nil, l.hasFailed) {
		i := indexOf(p)
		if settled.has(i) {
			continue
		}
		if last := out[i]; last == nil || totalFailures(last) <= totalFailures(p) && !finishedAt(p).Before(finishedAt(last)) {
			out[i] = p
		}
	}
	return out
}

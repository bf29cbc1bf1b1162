package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/period"
)

// plan is what to do about Pods.
type plan struct {
	create, remove []*corev1.Pod
	// tracked says that the Pods to remove count as failed: they keep the finalizer until they are noted. Others lose it
	// first, as if they had never been.
	tracked bool
	// again is when time alone makes a difference; 0 for never.
	again time.Duration
}

// decide is the first step of a look: what to do about the Pods of a Job that is not finished.
func decide(job *batchv1.Job, pods []*corev1.Pod, before *backoff, now time.Time) (*look, plan) {
	l := newLook(job, pods, before, now)
	if job.Status.StartTime == nil && !suspended(job) {
		job.Status.StartTime = new(metav1.NewTime(now))
	}
	l.judge()
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

// deadline is how much time a Job has left; 0 if it may take as long as it likes.
func (l *look) deadline() time.Duration {
	s := &l.job.Spec
	if s.ActiveDeadlineSeconds == nil || l.job.Status.StartTime == nil || suspended(l.job) {
		return 0
	}
	return period.Seconds(*s.ActiveDeadlineSeconds) - l.now.Sub(l.job.Status.StartTime.Time)
}

// judge finds out whether the Job has come to its end. What an earlier look has found stays; failures come before success.
func (l *look) judge() {
	s := &l.job.Status
	if c := find(s, batchv1.JobSuccessCriteriaMet); c != nil && c.Status == corev1.ConditionTrue {
		l.end = c.DeepCopy()
	} else if c := find(s, batchv1.JobFailureTarget); c != nil && c.Status == corev1.ConditionTrue {
		l.end = condition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message, l.now)
	}
	if l.end == nil {
		l.judgeFailures()
	}
	if indexed(l.job) {
		l.judgeIndexes()
	}
}

// fails makes the Job fail, if nothing else has ended it.
func (l *look) fails(reason, message string) {
	if l.end == nil {
		l.end = condition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message, l.now)
	}
}

// judgeFailures looks for a failure that ends the Job as a whole.
func (l *look) judgeFailures() {
	spec := &l.job.Spec
	for _, p := range l.pods {
		if spec.PodFailurePolicy != nil && l.hasFailed(p) {
			if v := judge(spec.PodFailurePolicy, p); v.message != "" {
				l.fails(batchv1.JobReasonPodFailurePolicy, v.message)
				return
			}
		}
	}
	switch {
	case l.failed > *spec.BackoffLimit || l.restartedTooOften():
		l.fails(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case spec.ActiveDeadlineSeconds != nil && l.job.Status.StartTime != nil && !suspended(l.job) && l.deadline() <= 0:
		l.fails(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	}
}

// restartedTooOften counts the restarts of containers, which are the failures of a Job whose Pods restart on failure.
func (l *look) restartedTooOften() bool {
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

// judgeIndexes works out which indexes are done and lost, and whether that ends the Job.
func (l *look) judgeIndexes() {
	spec, n := &l.job.Spec, l.completions()
	l.completed = parseIndexes(l.job.Status.CompletedIndexes, n)
	l.done = merge(l.completed, indexesOf(keep(l.pods, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && l.indexValid(p) && hasFinalizer(p)
	})))
	l.succeeded = int32(l.done.count())
	if spec.BackoffLimitPerIndex != nil {
		if text := l.job.Status.FailedIndexes; text != nil {
			l.lost = parseIndexes(*text, n)
		}
		l.lost = merge(l.lost, indexesOf(keep(l.pods, func(p *corev1.Pod) bool {
			return l.indexValid(p) && hasFinalizer(p) && l.losesIndex(p)
		})))
		switch lost := l.lost.count(); {
		case spec.MaxFailedIndexes != nil && lost > int(*spec.MaxFailedIndexes):
			l.fails(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
		case lost > 0 && lost+l.done.count() >= n:
			l.fails(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
		}
		l.kept = l.keepForReplacement()
	}
	if message := successMessage(spec.SuccessPolicy, n, l.done); message != "" && l.end == nil {
		l.end = condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, message, l.now)
	}
}

// losesIndex says that a Pod's failure is one too many for its index.
func (l *look) losesIndex(p *corev1.Pod) bool {
	if !l.hasFailed(p) {
		return false
	}
	v := judge(l.job.Spec.PodFailurePolicy, p)
	return v.action == batchv1.PodFailurePolicyActionFailIndex ||
		v.counts() && failures(p, batchv1.JobIndexFailureCountAnnotation) >= *l.job.Spec.BackoffLimitPerIndex
}

// keepForReplacement finds the last failed Pod of each index that waits for a new one. It keeps its finalizer until then: the new Pod carries
// on the count of failures that stands in its annotations.
func (l *look) keepForReplacement() map[int]*corev1.Pod {
	settled := merge(l.done, l.lost, indexesOf(l.active))
	out := map[int]*corev1.Pod{}
	for _, p := range l.fresher(nil, l.hasFailed) {
		i := indexOf(p)
		if settled.has(i) {
			continue
		}
		if last := out[i]; last == nil || allFailures(last) <= allFailures(p) && !finishedAt(p).Before(finishedAt(last)) {
			out[i] = p
		}
	}
	return out
}

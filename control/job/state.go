package job

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/control/lib/workload"
)

// jobState is the state of one reconcile of a Job and its Pods. Its methods are pure, and run in three steps with writes between
// them, because each step depends on the result of the writes before:
//
//	decide        decides which Pods to create and to delete, and whether the Job ends; if Pods are deleted because of that, the end
//	              is written into the status first, so that a controller that crashes in between does not decide otherwise
//	updateStatus  writes the Pods that have finished into the status, before their finalizers are removed
//	finish        counts the Pods whose finalizers were removed; when none is left, the Job is finished
//
// A Pod has the tracking finalizer until the status lists it as uncounted (or has its index among the completed ones), and it
// is removed from that list only by the write that adds it to the counters. So each Pod is counted once, whenever the
// controller crashes.
type jobState struct {
	job  *batchv1.Job // private; its status is the one to be written
	pods []*corev1.Pod
	now  time.Time

	active []*corev1.Pod
	// running, ready and terminating are the counts for the status.
	running, ready, terminating int32
	// succeeded and failed include Pods that are not counted yet.
	succeeded, failed int32
	// tracked are the Pods that still have the finalizer; the others are those that the status lists as uncounted.
	tracked                            sets.Set[types.UID]
	namedSucceeded, namedFailed        sets.Set[types.UID]
	completedIndexes, succeededIndexes indexes // as the status has them, and with the Pods that have succeeded since
	failedIndexes                      indexes // the failed indexes, if the Job has a back-off limit per index
	keptForReplacement                 map[int]*corev1.Pod
	backoff                            backoff
	end                                *batchv1.JobCondition
	events                             []event // the Events to record once the status is stored
	uncountedFull                      bool    // the list of uncounted Pods has its maximum length
	managed                            bool
}

// event is an Event to record about the Job.
type event struct{ kind, reason, message string }

// newJobState counts the Pods of a Job. before is the back-off so far; if it is nil, it is computed from the existing Pods.
func newJobState(job *batchv1.Job, pods []*corev1.Pod, before *backoff, now time.Time) *jobState {
	l := &jobState{job: job, pods: slices.Clone(pods), now: now, tracked: sets.New[types.UID]()}
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if isIndexed(job) {
		slices.SortStableFunc(l.pods, func(a, b *corev1.Pod) int { return indexOf(a) - indexOf(b) })
	}
	l.namedSucceeded = sets.New(job.Status.UncountedTerminatedPods.Succeeded...)
	l.namedFailed = sets.New(job.Status.UncountedTerminatedPods.Failed...)
	for _, p := range l.pods {
		switch {
		case workload.IsActive(p):
			l.active = append(l.active, p)
			if workload.IsReady(p) {
				l.ready++
			}
		case workload.IsTerminating(p):
			l.terminating++
		}
		if hasFinalizer(p) {
			l.tracked.Insert(p.UID)
		}
	}
	l.running = int32(len(l.active))
	succeeded := l.newlyFinished(l.namedSucceeded, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && !l.namedFailed.Has(p.UID) // a Pod that counts as failed stays so
	})
	failed := l.newlyFinished(l.namedFailed, l.hasFailed)
	l.succeeded = job.Status.Succeeded + int32(len(succeeded)+len(l.namedSucceeded))
	l.failed = job.Status.Failed + int32(len(l.namedFailed))
	for _, p := range failed {
		if applyFailurePolicy(job.Spec.PodFailurePolicy, p).counts() {
			l.failed++
		}
	}
	if before != nil {
		l.backoff = before.after(succeeded, failed)
	} else {
		l.backoff = backoff{}.after(
			filter(l.pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }), filter(l.pods, l.hasFailed))
	}
	return l
}

// newlyFinished returns the tracked Pods with a valid index that are not in a list yet and for which a predicate holds.
func (l *jobState) newlyFinished(named sets.Set[types.UID], holds func(*corev1.Pod) bool) []*corev1.Pod {
	return filter(l.pods, func(p *corev1.Pod) bool {
		return hasFinalizer(p) && !named.Has(p.UID) && l.indexValid(p) && holds(p)
	})
}

func filter(pods []*corev1.Pod, holds func(*corev1.Pod) bool) (out []*corev1.Pod) {
	for _, p := range pods {
		if holds(p) {
			out = append(out, p)
		}
	}
	return out
}

// hasFailed reports whether a Pod counts as failed. A Pod that is being deleted does too, because its phase may never become
// Failed, unless the Job replaces Pods only when they have ended.
func (l *jobState) hasFailed(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return !replacesAfterEnd(l.job) && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// indexValid reports whether a Pod has a valid index of the Job, or the Job has no indexes.
func (l *jobState) indexValid(p *corev1.Pod) bool {
	if !isIndexed(l.job) {
		return true
	}
	i := indexOf(p)
	return i != noIndex && i < l.completions()
}

// completions returns spec.completions, which must be set.
func (l *jobState) completions() int { return int(*l.job.Spec.Completions) }

const noIndex = -1

// indexOf returns the completion index of a Pod, or noIndex.
func indexOf(p *corev1.Pod) int {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}

// indexesOf returns the indexes that Pods have.
func indexesOf(pods []*corev1.Pod) indexes {
	var out []int
	for _, p := range pods {
		if i := indexOf(p); i != noIndex {
			out = append(out, i)
		}
	}
	return indexes{}.with(out)
}

func isIndexed(j *batchv1.Job) bool {
	return j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
}

// replacesAfterEnd reports whether a Pod is replaced only when it has ended, and not when its deletion begins.
func replacesAfterEnd(j *batchv1.Job) bool {
	return j.Spec.PodReplacementPolicy != nil && *j.Spec.PodReplacementPolicy == batchv1.Failed
}

func isSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func hasFinalizer(p *corev1.Pod) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// isFinished reports whether a Job has completed or failed.
func isFinished(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// isManagedByOther reports whether a Job is managed by another controller.
func isManagedByOther(j *batchv1.Job) bool {
	return j.Spec.ManagedBy != nil && *j.Spec.ManagedBy != batchv1.JobControllerName
}

func newCondition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.NewTime(now)
	return &batchv1.JobCondition{Type: t, Status: status, LastProbeTime: at, LastTransitionTime: at, Reason: reason, Message: message}
}

// findCondition returns the condition of a type, or nil.
func findCondition(s *batchv1.JobStatus, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition stores a condition and reports whether that changed the status. A new condition with status False is not added.
func setCondition(s *batchv1.JobStatus, c *batchv1.JobCondition) bool {
	have := findCondition(s, c.Type)
	switch {
	case have == nil && c.Status == corev1.ConditionFalse:
		return false
	case have == nil:
		s.Conditions = append(s.Conditions, *c)
		return true
	case have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message:
		return false
	}
	*have = *c
	return true
}

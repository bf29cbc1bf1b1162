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

	"proa.dev/control/workload"
)

// look is one look at a Job and its Pods: what was found, and what follows. It is pure, and done in three steps with writes
// between them, because each step depends on what became of the writes before:
//
//	decide  which Pods to make and to remove, and whether the Job has come to its end; if Pods go because of that, the end is
//	        announced first, so that a loop that is cut off does not take their going for a reason to see it otherwise
//	note    the Pods that have finished, in the status, before their finalizers go
//	count   the Pods whose finalizers went; when none is left, the Job is finished
//
// A Pod carries the tracking finalizer until the status names it as uncounted (or has its index among the completed ones), and its name leaves
// the list only in the write that adds it to the counters. So each Pod is counted once, wherever the loop is cut off.
type look struct {
	job  *batchv1.Job // private; its status is the one to be written
	pods []*corev1.Pod
	now  time.Time

	active []*corev1.Pod
	// running, ready and terminating are what the status will say.
	running, ready, terminating int32
	// succeeded and failed include what is not counted yet.
	succeeded, failed int32
	// tracked are the Pods whose finalizer is still there, and named those the status lists as uncounted.
	tracked                     sets.Set[types.UID]
	namedSucceeded, namedFailed sets.Set[types.UID]
	completed, done             indexes // as the status has them, and with the Pods that have succeeded since
	lost                        indexes // the failed indexes, of a Job that limits the failures of each
	kept                        map[int]*corev1.Pod
	backoff                     backoff
	end                         *batchv1.JobCondition
	fresh                       []event // what is news once the status is stored
	full                        bool    // the list of uncounted Pods is as long as it may get
	managed                     bool
}

// event is something to tell people about the Job.
type event struct{ kind, reason, message string }

// newLook sorts what was found. before is nil if nothing is known about earlier failures; then the Pods that are still there tell.
func newLook(job *batchv1.Job, pods []*corev1.Pod, before *backoff, now time.Time) *look {
	l := &look{job: job, pods: slices.Clone(pods), now: now, tracked: sets.New[types.UID]()}
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if indexed(job) {
		slices.SortStableFunc(l.pods, func(a, b *corev1.Pod) int { return indexOf(a) - indexOf(b) })
	}
	l.namedSucceeded = sets.New(job.Status.UncountedTerminatedPods.Succeeded...)
	l.namedFailed = sets.New(job.Status.UncountedTerminatedPods.Failed...)
	for _, p := range l.pods {
		switch {
		case workload.Active(p):
			l.active = append(l.active, p)
			if workload.Ready(p) {
				l.ready++
			}
		case workload.Terminating(p):
			l.terminating++
		}
		if hasFinalizer(p) {
			l.tracked.Insert(p.UID)
		}
	}
	l.running = int32(len(l.active))
	succeeded := l.fresher(l.namedSucceeded, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && !l.namedFailed.Has(p.UID) // what counts as failed cannot change its mind
	})
	failed := l.fresher(l.namedFailed, l.hasFailed)
	l.succeeded = job.Status.Succeeded + int32(len(succeeded)+len(l.namedSucceeded))
	l.failed = job.Status.Failed + int32(len(l.namedFailed))
	for _, p := range failed {
		if judge(job.Spec.PodFailurePolicy, p).counts() {
			l.failed++
		}
	}
	if before != nil {
		l.backoff = before.after(succeeded, failed)
	} else {
		l.backoff = backoff{}.after(
			keep(l.pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }), keep(l.pods, l.hasFailed))
	}
	return l
}

// fresher are the tracked Pods with a valid index that a list does not name yet and a test holds for.
func (l *look) fresher(named sets.Set[types.UID], holds func(*corev1.Pod) bool) []*corev1.Pod {
	return keep(l.pods, func(p *corev1.Pod) bool {
		return hasFinalizer(p) && !named.Has(p.UID) && l.indexValid(p) && holds(p)
	})
}

func keep(pods []*corev1.Pod, holds func(*corev1.Pod) bool) (out []*corev1.Pod) {
	for _, p := range pods {
		if holds(p) {
			out = append(out, p)
		}
	}
	return out
}

// hasFailed says that a Pod counts as failed. One that is being deleted does too, since it may never get so far as to say
// it; unless the Job waits for that.
func (l *look) hasFailed(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return !waitsForEnd(l.job) && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// indexValid says that a Pod has an index of the Job; in a Job without indexes every Pod is fine.
func (l *look) indexValid(p *corev1.Pod) bool {
	if !indexed(l.job) {
		return true
	}
	i := indexOf(p)
	return i != noIndex && i < l.completions()
}

// completions is the wanted number; only Jobs that have one ask.
func (l *look) completions() int { return int(*l.job.Spec.Completions) }

const noIndex = -1

// indexOf is the completion index that a Pod was made for.
func indexOf(p *corev1.Pod) int {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}

// indexesOf are the indexes that Pods have.
func indexesOf(pods []*corev1.Pod) indexes {
	var out []int
	for _, p := range pods {
		if i := indexOf(p); i != noIndex {
			out = append(out, i)
		}
	}
	return indexes{}.with(out)
}

func indexed(j *batchv1.Job) bool {
	return j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
}

// waitsForEnd says that a Pod is replaced only when it has really ended.
func waitsForEnd(j *batchv1.Job) bool {
	return j.Spec.PodReplacementPolicy != nil && *j.Spec.PodReplacementPolicy == batchv1.Failed
}

func suspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func hasFinalizer(p *corev1.Pod) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// finished says that a Job has come to its end.
func finished(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// managedElsewhere says that another controller than this one looks after a Job.
func managedElsewhere(j *batchv1.Job) bool {
	return j.Spec.ManagedBy != nil && *j.Spec.ManagedBy != batchv1.JobControllerName
}

func condition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.NewTime(now)
	return &batchv1.JobCondition{Type: t, Status: status, LastProbeTime: at, LastTransitionTime: at, Reason: reason, Message: message}
}

// find is the condition of a type, or nil.
func find(s *batchv1.JobStatus, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// set puts a condition in its place and says whether that changed anything. One that is false and was never there is no news.
func set(s *batchv1.JobStatus, c *batchv1.JobCondition) bool {
	have := find(s, c.Type)
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

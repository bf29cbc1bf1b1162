package cronjob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/duration"
)

// event is an Event to record about the CronJob.
type event struct{ kind, reason, message string }

// surplusJobs returns the finished Jobs that exceed the history limits, the oldest first.
func surplusJobs(c *batchv1.CronJob, jobs []*batchv1.Job) (out []*batchv1.Job) {
	for _, h := range []struct {
		end   batchv1.JobConditionType
		limit *int32
	}{{batchv1.JobComplete, c.Spec.SuccessfulJobsHistoryLimit}, {batchv1.JobFailed, c.Spec.FailedJobsHistoryLimit}} {
		if h.limit == nil {
			continue
		}
		var have []*batchv1.Job
		for _, j := range jobs {
			if endCondition(j) == h.end {
				have = append(have, j)
			}
		}
		slices.SortFunc(have, byStart)
		out = append(out, have[:max(0, len(have)-int(*h.limit))]...)
	}
	return out
}

// byStart orders Jobs by when they started; those that never did come last.
func byStart(a, b *batchv1.Job) int {
	at, bt := a.Status.StartTime, b.Status.StartTime
	switch {
	case at == nil && bt != nil:
		return 1
	case at != nil && bt == nil:
		return -1
	case at.Equal(bt):
		return cmp.Compare(a.Name, b.Name)
	}
	return at.Compare(bt.Time)
}

// endCondition returns the condition with which a Job has ended; empty if it has not.
func endCondition(j *batchv1.Job) batchv1.JobConditionType {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

func isActive(c *batchv1.CronJob, uid types.UID) bool {
	return slices.ContainsFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == uid })
}

func removeActive(c *batchv1.CronJob, uid types.UID) {
	c.Status.Active = slices.DeleteFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == uid })
}

// activeNotInView returns the active Jobs that the view does not show. Whether they were deleted must be asked of the server.
func activeNotInView(c *batchv1.CronJob, jobs []*batchv1.Job) (out []corev1.ObjectReference) {
	for _, r := range c.Status.Active {
		if !slices.ContainsFunc(jobs, func(j *batchv1.Job) bool { return j.UID == r.UID }) {
			out = append(out, r)
		}
	}
	return out
}

// unexpectedJobs returns the running Jobs that are not in the list of active ones.
func unexpectedJobs(c *batchv1.CronJob, jobs []*batchv1.Job) (out []*batchv1.Job) {
	for _, j := range jobs {
		if endCondition(j) == "" && !isActive(c, j.UID) {
			out = append(out, j)
		}
	}
	return out
}

// updateStatus updates the status from the Jobs that have finished and those that were deleted.
func updateStatus(c *batchv1.CronJob, jobs []*batchv1.Job, deleted []corev1.ObjectReference) (events []event) {
	for _, j := range unexpectedJobs(c, jobs) {
		events = append(events, event{corev1.EventTypeWarning, "UnexpectedJob",
			"Saw a job that the controller did not create or forgot: " + j.Name})
	}
	for _, j := range jobs {
		end := endCondition(j)
		if end == "" {
			continue
		}
		if isActive(c, j.UID) {
			removeActive(c, j.UID)
			events = append(events, event{corev1.EventTypeNormal, "SawCompletedJob",
				fmt.Sprintf("Saw completed job: %s, condition: %v", j.Name, end)})
		}
		if at, last := j.Status.CompletionTime, c.Status.LastSuccessfulTime; end == batchv1.JobComplete && at != nil &&
			(last == nil || at.After(last.Time)) {
			c.Status.LastSuccessfulTime = at.DeepCopy()
		}
	}
	for _, r := range deleted {
		removeActive(c, r.UID)
		events = append(events, event{corev1.EventTypeNormal, "MissingJob", "Active job went missing: " + r.Name})
	}
	return events
}

// plan is what to do at a moment by the schedule.
type plan struct {
	events []event
	// replace are the Jobs to delete before the new one starts.
	replace []corev1.ObjectReference
	// start is the Job to create, for the time at; nil for none.
	start *batchv1.Job
	at    time.Time
	// again is the time until the next run is due; 0 for never.
	again time.Duration
}

// decide returns what is due now.
func decide(c *batchv1.CronJob, now time.Time) (p plan) {
	warn := func(reason, format string, args ...any) {
		p.events = append(p.events, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
	}
	if c.DeletionTimestamp != nil {
		return p
	}
	if zone := c.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			warn("UnknownTimeZone", "invalid timeZone: %q: %s", *zone, err)
			return p
		}
	}
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return p
	}
	if strings.Contains(c.Spec.Schedule, "TZ") {
		warn("UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", c.Spec.Schedule)
	}
	s, err := parse(c)
	if err != nil {
		warn("UnparseableSchedule", "unparseable schedule: %q : %s", c.Spec.Schedule, err)
		return p
	}
	d, err := dueAt(c, s, now, true)
	if err != nil {
		warn("InvalidSchedule", "invalid schedule: %s : %s", c.Spec.Schedule, err)
		return p
	}
	if !d.at.IsZero() && d.missed > maxMissed {
		warn("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	late := c.Spec.StartingDeadlineSeconds
	switch {
	case d.at.IsZero():
	case late != nil && d.at.Add(duration.FromSeconds(*late)).Before(now):
		warn("MissSchedule", "Missed scheduled time to start a job: %s", d.at.UTC().Format(time.RFC1123Z))
	case hasStarted(c, d.at):
	case c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(c.Status.Active) > 0:
		p.events = append(p.events, event{corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid"})
	default:
		p.startJob(c, d.at)
	}
	p.again = nextReconcile(c, s, p, now)
	return p
}

// nextReconcile returns the time until the CronJob has to be reconciled again, after the plan has been carried out.
func nextReconcile(c *batchv1.CronJob, s cron.Schedule, p plan, now time.Time) time.Duration {
	if p.start != nil {
		c = &batchv1.CronJob{ObjectMeta: c.ObjectMeta, Spec: c.Spec,
			Status: batchv1.CronJobStatus{LastScheduleTime: new(metav1.NewTime(p.at))}}
	}
	return untilNext(c, s, now)
}

// hasStarted reports whether the run of a time has been started already.
func hasStarted(c *batchv1.CronJob, at time.Time) bool {
	name := nameAt(c, at)
	return slices.ContainsFunc(c.Status.Active,
		func(r corev1.ObjectReference) bool { return r.Name == name && r.Namespace == c.Namespace }) ||
		c.Status.LastScheduleTime != nil && c.Status.LastScheduleTime.Time.Equal(at)
}

func (p *plan) startJob(c *batchv1.CronJob, at time.Time) {
	if c.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
		p.replace = slices.Clone(c.Status.Active)
	}
	p.start, p.at = newJob(c, at), at
}

// nameAt returns the name of the Job for a time. It depends on the time only, so that a run cannot be started twice.
func nameAt(c *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60)
}

// newJob returns the Job for a time.
func newJob(c *batchv1.CronJob, at time.Time) *batchv1.Job {
	zone := time.UTC
	if name := c.Spec.TimeZone; name != nil {
		if l, err := time.LoadLocation(*name); err == nil {
			zone = l
		}
	}
	t := &c.Spec.JobTemplate
	annotations := maps.Clone(t.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: nameAt(c, at), Labels: maps.Clone(t.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, cronKind)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// recordRun adds a run to the status.
func recordRun(c *batchv1.CronJob, j *batchv1.Job, at time.Time) {
	c.Status.Active = append(c.Status.Active, corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID,
		ResourceVersion: j.ResourceVersion,
	})
	c.Status.LastScheduleTime = new(metav1.NewTime(at))
}

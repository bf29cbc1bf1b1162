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

	"proa.dev/kinds/period"
)

// event is something to tell people about the CronJob.
type event struct{ kind, reason, message string }

// old are the finished Jobs that are more than the history should have, the oldest first.
func old(c *batchv1.CronJob, jobs []*batchv1.Job) (out []*batchv1.Job) {
	for _, h := range []struct {
		end   batchv1.JobConditionType
		limit *int32
	}{{batchv1.JobComplete, c.Spec.SuccessfulJobsHistoryLimit}, {batchv1.JobFailed, c.Spec.FailedJobsHistoryLimit}} {
		if h.limit == nil {
			continue
		}
		var have []*batchv1.Job
		for _, j := range jobs {
			if finished(j) == h.end {
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

// finished is how a Job has ended; empty if it has not.
func finished(j *batchv1.Job) batchv1.JobConditionType {
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

func drop(c *batchv1.CronJob, uid types.UID) {
	c.Status.Active = slices.DeleteFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == uid })
}

// unseen are the active Jobs that the view does not show; the server has to be asked whether they are really gone.
func unseen(c *batchv1.CronJob, jobs []*batchv1.Job) (out []corev1.ObjectReference) {
	for _, r := range c.Status.Active {
		if !slices.ContainsFunc(jobs, func(j *batchv1.Job) bool { return j.UID == r.UID }) {
			out = append(out, r)
		}
	}
	return out
}

// unexpected are Jobs that run and are not on the list of active ones.
func unexpected(c *batchv1.CronJob, jobs []*batchv1.Job) (out []*batchv1.Job) {
	for _, j := range jobs {
		if finished(j) == "" && !isActive(c, j.UID) {
			out = append(out, j)
		}
	}
	return out
}

// review brings the status up to date with the Jobs: those that have finished, and those that are gone.
func review(c *batchv1.CronJob, jobs []*batchv1.Job, gone []corev1.ObjectReference) (news []event) {
	for _, j := range unexpected(c, jobs) {
		news = append(news, event{corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: " + j.Name})
	}
	for _, j := range jobs {
		end := finished(j)
		if end == "" {
			continue
		}
		if isActive(c, j.UID) {
			drop(c, j.UID)
			news = append(news, event{corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %v", j.Name, end)})
		}
		if at, last := j.Status.CompletionTime, c.Status.LastSuccessfulTime; end == batchv1.JobComplete && at != nil && (last == nil || at.After(last.Time)) {
			c.Status.LastSuccessfulTime = at.DeepCopy()
		}
	}
	for _, r := range gone {
		drop(c, r.UID)
		news = append(news, event{corev1.EventTypeNormal, "MissingJob", "Active job went missing: " + r.Name})
	}
	return news
}

// plan is what to do about the schedule.
type plan struct {
	news []event
	// replace are the Jobs to delete before the new one starts.
	replace []corev1.ObjectReference
	// start is the Job to create, for the time at; nil for none.
	start *batchv1.Job
	at    time.Time
	// again is when the next run is due; 0 for never.
	again time.Duration
}

// decide tells what is due now.
func decide(c *batchv1.CronJob, now time.Time) (p plan) {
	warn := func(reason, format string, args ...any) {
		p.news = append(p.news, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
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
	if !d.at.IsZero() && d.missed > manyMissed {
		warn("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	late := c.Spec.StartingDeadlineSeconds
	switch {
	case d.at.IsZero():
	case late != nil && d.at.Add(period.Seconds(*late)).Before(now):
		warn("MissSchedule", "Missed scheduled time to start a job: %s", d.at.UTC().Format(time.RFC1123Z))
	case started(c, d.at):
	case c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(c.Status.Active) > 0:
		p.news = append(p.news, event{corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid"})
	default:
		p.begin(c, d.at)
	}
	p.again = next(c, s, p, now)
	return p
}

// next is when the CronJob wants attention again, as it will be once the plan is done.
func next(c *batchv1.CronJob, s cron.Schedule, p plan, now time.Time) time.Duration {
	if p.start != nil {
		c = &batchv1.CronJob{ObjectMeta: c.ObjectMeta, Spec: c.Spec, Status: batchv1.CronJobStatus{LastScheduleTime: new(metav1.NewTime(p.at))}}
	}
	return untilNext(c, s, now)
}

// started says that the run of a time has begun already.
func started(c *batchv1.CronJob, at time.Time) bool {
	name := nameAt(c, at)
	return slices.ContainsFunc(c.Status.Active, func(r corev1.ObjectReference) bool { return r.Name == name && r.Namespace == c.Namespace }) ||
		c.Status.LastScheduleTime != nil && c.Status.LastScheduleTime.Time.Equal(at)
}

func (p *plan) begin(c *batchv1.CronJob, at time.Time) {
	if c.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
		p.replace = slices.Clone(c.Status.Active)
	}
	p.start, p.at = newJob(c, at), at
}

// nameAt is the name of a run. It follows from the time, so that a run cannot be started twice.
func nameAt(c *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60)
}

// newJob makes the Job of a run.
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

// begun notes a run in the status.
func begun(c *batchv1.CronJob, j *batchv1.Job, at time.Time) {
	c.Status.Active = append(c.Status.Active, corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion,
	})
	c.Status.LastScheduleTime = new(metav1.NewTime(at))
}

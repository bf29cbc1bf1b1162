package cronjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/control"
	"proa.dev/internal/textcase"
)

// decideCase is the input of a case: a CronJob, its Jobs, and the time.
type decideCase struct {
	Now, Created, Last metav1.Time
	LastSuccessful     *metav1.Time
	Active, Gone       []string
	Deleted            bool
	Spec               batchv1.CronJobSpec
	Jobs               []struct {
		Name, End          string
		Started, Completed *metav1.Time
	}
}

// TestDecide runs the cases of testdata/decide.txt through the pure functions, in the order in which reconcile calls them.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide.txt", "--", func(t *testing.T, in string) string {
		var m decideCase
		if err := yaml.UnmarshalStrict([]byte(in), &m); err != nil {
			t.Fatal(err)
		}
		return m.decide()
	})
}

func (m *decideCase) decide() string {
	var b strings.Builder
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "cron", CreationTimestamp: m.Created},
		Spec: m.Spec}
	if !m.Last.IsZero() {
		c.Status.LastScheduleTime = &m.Last
	}
	if m.Deleted {
		c.DeletionTimestamp = &m.Now
	}
	c.Status.LastSuccessfulTime = m.LastSuccessful
	for _, name := range m.Active {
		c.Status.Active = append(c.Status.Active, corev1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID(name)})
	}
	var jobs []*batchv1.Job
	for _, j := range m.Jobs {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: j.Name, UID: types.UID(j.Name)}}
		job.Status.StartTime, job.Status.CompletionTime = j.Started, j.Completed
		if j.End != "" {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobConditionType(j.End), Status: corev1.ConditionTrue}}
		}
		jobs = append(jobs, job)
	}
	for _, j := range surplusJobs(c, jobs) {
		fmt.Fprintf(&b, "delete %s\n", j.Name)
		removeActive(c, j.UID)
	}
	var deleted []corev1.ObjectReference
	for _, r := range activeNotInView(c, jobs) {
		fmt.Fprintf(&b, "ask for %s\n", r.Name)
		for _, g := range m.Gone {
			if g == r.Name {
				deleted = append(deleted, r)
			}
		}
	}
	printEvents := func(events []event) {
		for _, e := range events {
			fmt.Fprintf(&b, "event %s %s: %s\n", e.kind, e.reason, e.message)
		}
	}
	printEvents(updateStatus(c, jobs, deleted))
	p := decide(c, m.Now.Time)
	printEvents(p.events)
	for _, r := range p.replace {
		fmt.Fprintf(&b, "replace %s\n", r.Name)
		removeActive(c, r.UID)
	}
	if p.start != nil {
		fmt.Fprintf(&b, "start %s for %s\n", p.start.Name, p.start.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		recordRun(c, p.start, p.at)
	}
	if p.again > 0 {
		fmt.Fprintf(&b, "again %s\n", p.again)
	}
	b.WriteString("= active")
	for _, r := range c.Status.Active {
		b.WriteString(" " + r.Name)
	}
	for name, at := range map[string]*metav1.Time{"last": c.Status.LastScheduleTime} {
		if at != nil {
			fmt.Fprintf(&b, ", %s %s", name, at.UTC().Format(time.RFC3339))
		}
	}
	if at := c.Status.LastSuccessfulTime; at != nil {
		fmt.Fprintf(&b, ", successful %s", at.UTC().Format(time.RFC3339))
	}
	b.WriteString("\n")
	return b.String()
}

func TestRescheduled(t *testing.T) {
	x := &reconciler{schedules: map[control.Key]schedule{}}
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}
	steps := []struct {
		what   string
		change func()
		want   bool
	}{
		{"seen first", func() {}, false},
		{"nothing new", func() {}, false},
		{"another schedule", func() { c.Spec.Schedule = "@hourly" }, true},
		{"nothing new again", func() {}, false},
		{"another zone", func() { c.Spec.TimeZone = new("Asia/Tokyo") }, true},
		{"another of the name", func() { c.UID, c.Spec.Schedule = "2", "@daily" }, false},
		{"forgotten", func() { x.forget(control.Key{}) }, false},
	}
	for _, s := range steps {
		s.change()
		if got := x.rescheduled(control.Key{}, c); got != s.want {
			t.Errorf("%s: %v", s.what, got)
		}
	}
}

// TestRunsOfAgesAgo has a status that says that the last of the runs of every minute was in the year 1: a billion missed runs are not
// looked at one after the other.
func TestRunsOfAgesAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC)
	c := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}
	c.Status.LastScheduleTime = new(metav1.NewTime(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)))
	s, err := parse(c)
	if err != nil {
		t.Fatal(err)
	}
	calls := &countingSchedule{Schedule: s}
	if d, err := dueAt(c, calls, now, true); err != nil || !d.at.Equal(now.Truncate(time.Minute)) || calls.n > 100 {
		t.Errorf("due %v after %d steps, %v", d.at, calls.n, err)
	}
}

// countingSchedule counts the calls of a schedule, and ends it after a million.
type countingSchedule struct {
	cron.Schedule
	n int
}

func (s *countingSchedule) Next(at time.Time) time.Time {
	if s.n++; s.n > 1e6 {
		return time.Time{}
	}
	return s.Schedule.Next(at)
}

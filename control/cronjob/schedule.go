package cronjob

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a host may have no zone database

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"

	"proa.dev/kinds/lib/duration"
)

const (
	// slack is added to the time until the next run, so that a slow clock does not wake the controller too early.
	slack = 100 * time.Millisecond
	// longestAgo is how long ago runs are looked for: a status can say that the last one was in the year 1.
	longestAgo = 10 * 366 * 24 * time.Hour
	// maxMissed is the number of missed runs above which a warning is recorded.
	maxMissed = 100
)

// parse parses the schedule of a CronJob, in its time zone unless the schedule itself names one. It recovers from panics of
// the library, which some schedules that begin with a zone cause.
func parse(c *batchv1.CronJob) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("invalid schedule format: %v", p)
		}
	}()
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		if _, err := time.LoadLocation(*zone); err == nil {
			text = "TZ=" + *zone + " " + text
		}
	}
	return cron.ParseStandard(text)
}

// due is the result of dueAt.
type due struct {
	// since is the time from which runs count: that of the last run, or the creation of the CronJob.
	since time.Time
	// at is the last time at which a run was due; zero if none was.
	at time.Time
	// missed is about how many runs were due; 0 if only the one in at was.
	missed int64
}

// dueAt returns the last time before now at which a run was due. With deadline it ignores times before the starting deadline.
func dueAt(c *batchv1.CronJob, s cron.Schedule, now time.Time, deadline bool) (due, error) {
	d := due{since: c.CreationTimestamp.Time}
	if t := c.Status.LastScheduleTime; t != nil {
		d.since = t.Time
	}
	if late := c.Spec.StartingDeadlineSeconds; deadline && late != nil {
		if from := now.Add(-duration.FromSeconds(*late)); from.After(d.since) {
			d.since = from
		}
	}
	if from := now.Add(-longestAgo); from.After(d.since) {
		d.since = from
	}
	first := s.Next(d.since)
	second := s.Next(first)
	switch {
	case now.Before(first):
		return d, nil
	case now.Before(second):
		d.at = first
		return d, nil
	}
	// A schedule such as the 31st of February has no next time at all.
	interval := int64(second.Sub(first).Round(time.Second).Seconds())
	if interval < 1 {
		return d, errors.New("time difference between two schedules is less than 1 second")
	}
	// The number of missed runs is estimated from the first interval. Because intervals may differ, the search for the last
	// run begins two intervals before the estimated one.
	d.missed = int64(now.Sub(first).Seconds())/interval + 1
	for t := s.Next(first.Add(time.Duration((d.missed-2)*interval) * time.Second)); !t.After(now) && !t.IsZero(); t = s.Next(t) {
		d.at = t
	}
	return d, nil
}

// untilNext returns the time until the next run is due.
func untilNext(c *batchv1.CronJob, s cron.Schedule, now time.Time) time.Duration {
	d, err := dueAt(c, s, now, false)
	from := d.at
	switch {
	case err != nil, from.IsZero() && d.missed > 0:
		from = now
	case from.IsZero():
		from = d.since
	}
	return max(s.Next(from).Add(slack).Sub(now), slack)
}

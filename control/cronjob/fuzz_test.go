package cronjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzDue checks for arbitrary schedules that a due run lies in the past but within the starting deadline, and that the next
// reconcile is later.
func FuzzDue(f *testing.F) {
	f.Add("*/5 * * * *", "Europe/Berlin", int64(1_700_000_000), int64(1_700_100_000), int64(600))
	f.Add("0 0 31 2 *", "", int64(0), int64(1_700_000_000), int64(-1))
	f.Add("@every 1h", "Etc/UTC", int64(1_700_000_000), int64(1_700_003_600), int64(10_000_000_000))
	f.Add("CRON_TZ=Asia/Tokyo @daily", "", int64(1_600_000_000), int64(1_700_000_000), int64(0))
	f.Fuzz(func(t *testing.T, schedule, zone string, created, at, deadline int64) {
		const latest = 4_000_000_000 // in the year 2096
		if created < 0 || created > latest || at < created || at > latest || at-created > 20*365*24*3600 {
			return
		}
		c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(created, 0)},
			Spec: batchv1.CronJobSpec{Schedule: schedule}}
		if zone != "" {
			c.Spec.TimeZone = &zone
		}
		if deadline >= 0 {
			c.Spec.StartingDeadlineSeconds = &deadline
		}
		s, err := parse(c)
		if err != nil {
			return
		}
		now := time.Unix(at, 0)
		d, err := dueAt(c, s, now, true)
		if err != nil {
			return
		}
		if d.since.After(now) || d.at.After(now) || d.missed < 0 {
			t.Errorf("at %v: %+v", now, d)
		}
		if wait := untilNext(c, s, now); wait < slack {
			t.Errorf("reconciles again after %v", wait)
		}
	})
}

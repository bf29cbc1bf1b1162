package ttlafterfinished

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	finishedAt := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	job := func(seconds *int32, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: seconds}, Status: batchv1.JobStatus{Conditions: conditions}}
	}
	finished := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(finishedAt)}
	}
	terminating := job(new(int32(10)), finished(batchv1.JobComplete))
	terminating.DeletionTimestamp = new(metav1.NewTime(finishedAt))
	for _, c := range []struct {
		what    string
		job     *batchv1.Job
		after   time.Duration
		expired bool
		wait    time.Duration
		fails   bool
	}{
		{what: "no time to live", job: job(nil, finished(batchv1.JobComplete)), after: time.Hour},
		{what: "not finished", job: job(new(int32(10)), finished(batchv1.JobSuspended)), after: time.Hour},
		{what: "finished, and some time is left", job: job(new(int32(10)), finished(batchv1.JobComplete)), after: 4 * time.Second,
			wait: 6 * time.Second},
		{what: "finished, and the time is over", job: job(new(int32(10)), finished(batchv1.JobComplete)), after: 10 * time.Second,
			expired: true},
		{what: "failed, and the time is over", job: job(new(int32(10)), finished(batchv1.JobFailed)), after: time.Minute, expired: true},
		{what: "no time at all", job: job(new(int32(0)), finished(batchv1.JobFailed)), expired: true},
		{what: "finished in the future", job: job(new(int32(10)), finished(batchv1.JobFailed)), after: -time.Minute,
			wait: 70 * time.Second},
		{what: "being deleted", job: terminating, after: time.Hour},
		{what: "finished at an unknown time",
			job: job(new(int32(10)), batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}), fails: true},
	} {
		expired, wait, err := decide(c.job, finishedAt.Add(c.after))
		if expired != c.expired || wait != c.wait || (err != nil) != c.fails {
			t.Errorf("%s: expired %v, wait %v, %v", c.what, expired, wait, err)
		}
		if want := c.job.Spec.TTLSecondsAfterFinished != nil && c.job.DeletionTimestamp == nil &&
			c.what != "not finished"; hasTTL(nil, c.job) != want {
			t.Errorf("%s: wakes the controller: %v", c.what, !want)
		}
	}
}

package ttlafterfinished

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	end := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	job := func(seconds *int32, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: seconds}, Status: batchv1.JobStatus{Conditions: conditions}}
	}
	ended := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(end)}
	}
	leaving := job(new(int32(10)), ended(batchv1.JobComplete))
	leaving.DeletionTimestamp = new(metav1.NewTime(end))
	for _, c := range []struct {
		what  string
		job   *batchv1.Job
		after time.Duration
		over  bool
		wait  time.Duration
		fails bool
	}{
		{what: "no time to live", job: job(nil, ended(batchv1.JobComplete)), after: time.Hour},
		{what: "not finished", job: job(new(int32(10)), ended(batchv1.JobSuspended)), after: time.Hour},
		{what: "finished, and some time is left", job: job(new(int32(10)), ended(batchv1.JobComplete)), after: 4 * time.Second,
			wait: 6 * time.Second},
		{what: "finished, and the time is over", job: job(new(int32(10)), ended(batchv1.JobComplete)), after: 10 * time.Second, over: true},
		{what: "failed, and the time is over", job: job(new(int32(10)), ended(batchv1.JobFailed)), after: time.Minute, over: true},
		{what: "no time at all", job: job(new(int32(0)), ended(batchv1.JobFailed)), over: true},
		{what: "finished in the future", job: job(new(int32(10)), ended(batchv1.JobFailed)), after: -time.Minute, wait: 70 * time.Second},
		{what: "leaving already", job: leaving, after: time.Hour},
		{what: "nobody knows when", job: job(new(int32(10)), batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}),
			fails: true},
	} {
		over, wait, err := decide(c.job, end.Add(c.after))
		if over != c.over || wait != c.wait || (err != nil) != c.fails {
			t.Errorf("%s: over %v, wait %v, %v", c.what, over, wait, err)
		}
		if want := c.job.Spec.TTLSecondsAfterFinished != nil && c.job.DeletionTimestamp == nil &&
			c.what != "not finished"; hasTTL(nil, c.job) != want {
			t.Errorf("%s: wakes the controller: %v", c.what, !want)
		}
	}
}

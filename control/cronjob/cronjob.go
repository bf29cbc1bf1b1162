// Package cronjob starts Jobs when the schedules of CronJobs say so, keeps the list of those that run, and clears away the
// oldest of those that have ended.
package cronjob

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

var cronKind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Controller returns the loop.
func Controller() control.Controller {
	r := &reconciler{known: map[control.Key]string{}}
	return control.Controller{
		Name: "cronjob-controller", For: gr.CronJobs, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Jobs, Keys: control.Owner("batch", "CronJob")}},
		Writes: []control.Write{
			{On: gr.CronJobs, Do: "get update/status"},
			{On: gr.Jobs, Do: "get create delete"},
		},
		Reconcile: r.reconcile,
	}
}

type reconciler struct {
	mu    sync.Mutex // guards known
	known map[control.Key]string
}

// rescheduled says that a CronJob has got another schedule since the last look. It begins to count with the next time then: that times in the
// past were due by the new schedule is no reason to run at once.
func (r *reconciler) rescheduled(k control.Key, c *batchv1.CronJob) bool {
	zone := ""
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	now := string(c.UID) + " " + zone + " " + c.Spec.Schedule
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.known[k]
	r.known[k] = now
	return known && was != now
}

func (r *reconciler) forget(k control.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, k)
}

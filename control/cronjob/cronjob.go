// Package cronjob creates Jobs by the schedules of CronJobs, keeps the list of active ones in the status, and deletes the
// oldest finished ones.
package cronjob

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

var cronKind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Controller returns the controller.
func Controller() control.Controller {
	r := &reconciler{schedules: map[control.Key]schedule{}}
	return control.Controller{
		Name: "cronjob-controller", For: gr.CronJobs, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Jobs, Keys: control.ControllerOwner("batch", "CronJob")}},
		Writes: []control.Write{
			{On: gr.CronJobs, Do: "get update/status update/finalizers"},
			{On: gr.Jobs, Do: "get create delete"},
		},
		Reconcile: r.reconcile,
	}
}

// schedule is the schedule that a CronJob had at its last reconcile.
type schedule struct {
	uid        types.UID
	text, zone string
}

type reconciler struct {
	mu        sync.Mutex // guards schedules
	schedules map[control.Key]schedule
}

// rescheduled reports whether the schedule of a CronJob has changed since its last reconcile. The new schedule counts from
// now on: that a time in the past was due by it is no reason to start a Job at once.
func (r *reconciler) rescheduled(k control.Key, c *batchv1.CronJob) bool {
	now := schedule{uid: c.UID, text: c.Spec.Schedule}
	if c.Spec.TimeZone != nil {
		now.zone = *c.Spec.TimeZone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.schedules[k]
	r.schedules[k] = now
	return was.uid == now.uid && was != now
}

func (r *reconciler) forget(k control.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.schedules, k)
}

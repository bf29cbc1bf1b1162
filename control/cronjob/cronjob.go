// Package cronjob starts Jobs when the schedules of CronJobs say so, keeps the list of those that run, and clears away the
// oldest of those that have ended.
package cronjob

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

var cronKind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Controller returns the loop.
func Controller() control.Controller {
	r := &reconciler{known: map[control.Key]schedule{}}
	return control.Controller{
		Name: "cronjob-controller", For: gr.CronJobs, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Jobs, Keys: control.Owner("batch", "CronJob")}},
		Writes: []control.Write{
			{On: gr.CronJobs, Do: "get update/status update/finalizers"},
			{On: gr.Jobs, Do: "get create delete"},
		},
		Reconcile: r.reconcile,
	}
}

// schedule is what the schedule of a CronJob was at the last look.
type schedule struct {
	uid        types.UID
	text, zone string
}

type reconciler struct {
	mu    sync.Mutex // guards known
	known map[control.Key]schedule
}

// rescheduled says that a CronJob has got another schedule since the last look. It begins to count with the next time then: that times in the
// past were due by the new schedule is no reason to run at once.
func (r *reconciler) rescheduled(k control.Key, c *batchv1.CronJob) bool {
	now := schedule{uid: c.UID, text: c.Spec.Schedule}
	if c.Spec.TimeZone != nil {
		now.zone = *c.Spec.TimeZone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.known[k]
	r.known[k] = now
	return was.uid == now.uid && was != now
}

func (r *reconciler) forget(k control.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, k)
}

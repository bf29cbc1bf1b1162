// Package ttl deletes Jobs that have finished some time ago, if they say how long they want to stay.
package ttl

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "ttl-after-finished-controller", For: gr.Jobs, Workers: 5, When: wants,
		Writes:    []control.Write{{On: gr.Jobs, Do: "get delete"}},
		Reconcile: reconcile,
	}
}

// wants leaves out Jobs that do not end by time.
func wants(_, now kind.Object) bool {
	j, ok := now.(*batchv1.Job)
	return ok && finished(j) != nil && j.Spec.TTLSecondsAfterFinished != nil && j.DeletionTimestamp == nil
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	seen, found := control.Get[*batchv1.Job](c, gr.Jobs, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	over, wait, err := decide(seen, time.Now())
	if !over || err != nil {
		return wait, err
	}
	// The Job may have been given more time, which the view does not show yet.
	o, err := c.Get(ctx, gr.Jobs, k.Namespace, k.Name, "")
	if err != nil {
		return 0, control.Gone(err)
	}
	now, ok := o.(*batchv1.Job)
	if !ok {
		return 0, fmt.Errorf("%T is no Job", o)
	}
	if over, wait, err = decide(now, time.Now()); !over || err != nil {
		return wait, err
	}
	return 0, control.Gone(c.Delete(ctx, gr.Jobs, k.Namespace, k.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{UID: new(now.GetUID()), ResourceVersion: new(now.GetResourceVersion())},
	}))
}

// decide says whether a Job's time is over, or else how long it takes; 0 if that is not a question of time.
func decide(j *batchv1.Job, now time.Time) (over bool, wait time.Duration, err error) {
	end := finished(j)
	if j.DeletionTimestamp != nil || end == nil || j.Spec.TTLSecondsAfterFinished == nil {
		return false, 0, nil
	}
	if end.LastTransitionTime.IsZero() {
		return false, 0, fmt.Errorf("unable to find the time when the Job %s/%s finished", j.Namespace, j.Name)
	}
	left := end.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now)
	return left <= 0, max(0, left), nil
}

// finished is the condition that says how a Job has ended, or nil.
func finished(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

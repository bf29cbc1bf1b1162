// Package ttlafterfinished deletes finished Jobs when their spec.ttlSecondsAfterFinished has passed.
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "ttl-after-finished-controller", For: gr.Jobs, Workers: 5, When: hasTTL,
		Writes:    []control.Write{{On: gr.Jobs, Do: "get delete"}},
		Reconcile: reconcile,
	}
}

// hasTTL accepts finished Jobs with a TTL.
func hasTTL(_, now kind.Object) bool {
	j, ok := now.(*batchv1.Job)
	return ok && endCondition(j) != nil && j.Spec.TTLSecondsAfterFinished != nil && j.DeletionTimestamp == nil
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	seen, found := control.Get[*batchv1.Job](c, gr.Jobs, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	expired, wait, err := decide(seen, time.Now())
	if !expired || err != nil {
		return wait, err
	}
	// The Job may have got a longer TTL, which the view does not show yet.
	o, err := c.Get(ctx, gr.Jobs, k.Namespace, k.Name, "")
	if err != nil {
		return 0, control.IgnoreNotFound(err)
	}
	now, ok := o.(*batchv1.Job)
	if !ok {
		return 0, fmt.Errorf("%T is no Job", o)
	}
	if expired, wait, err = decide(now, time.Now()); !expired || err != nil {
		return wait, err
	}
	return 0, control.IgnoreNotFound(c.Delete(ctx, gr.Jobs, k.Namespace, k.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: new(now.GetUID()), ResourceVersion: new(now.GetResourceVersion())},
	}))
}

// decide reports whether the TTL of a Job has expired, and otherwise the time until it does; 0 if it has none.
func decide(j *batchv1.Job, now time.Time) (expired bool, wait time.Duration, err error) {
	end := endCondition(j)
	if j.DeletionTimestamp != nil || end == nil || j.Spec.TTLSecondsAfterFinished == nil {
		return false, 0, nil
	}
	if end.LastTransitionTime.IsZero() {
		return false, 0, fmt.Errorf("unable to find the time when the Job %s/%s finished", j.Namespace, j.Name)
	}
	left := end.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now)
	return left <= 0, max(0, left), nil
}

// endCondition returns the condition with which a Job has ended, or nil.
func endCondition(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

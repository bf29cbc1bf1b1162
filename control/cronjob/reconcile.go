package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	shared, found := control.Get[*batchv1.CronJob](c, gr.CronJobs, k.Namespace, k.Name)
	if !found {
		r.forget(k)
		return 0, nil
	}
	now := time.Now()
	if s, err := parse(shared); r.rescheduled(k, shared) && err == nil {
		return untilNext(shared, s, now), nil
	}
	jobs := slices.Collect(control.Owned[*batchv1.Job](c, gr.Jobs, shared))
	cron := shared.DeepCopy()
	if len(unexpectedJobs(cron, jobs)) > 0 { // the view may not show yet that the status lists the Job
		if err := workload.CheckUnchanged(ctx, c, gr.CronJobs, shared); err != nil {
			return 0, err
		}
	}
	for _, j := range surplusJobs(cron, jobs) {
		_ = remove(ctx, c, cron, j) // a failure is recorded as an Event, and the next reconcile tries again
	}
	deleted, err := deletedJobs(ctx, c, activeNotInView(cron, jobs))
	if err != nil {
		return 0, errors.Join(err, store(ctx, c, shared, cron))
	}
	recordEvents(c, cron, updateStatus(cron, jobs, deleted))
	p := decide(cron, now)
	recordEvents(c, cron, p.events)
	again := p.again
	if p.start != nil {
		if err = workload.CheckUnchanged(ctx, c, gr.CronJobs, shared); err == nil {
			err = startRun(ctx, c, cron, p)
		}
	}
	return again, errors.Join(err, store(ctx, c, shared, cron))
}

// deletedJobs asks the server which Jobs do not exist.
func deletedJobs(ctx context.Context, c *control.Cluster, refs []corev1.ObjectReference) (deleted []corev1.ObjectReference, err error) {
	for _, r := range refs {
		_, err := c.Get(ctx, gr.Jobs, r.Namespace, r.Name, "")
		switch {
		case apierrors.IsNotFound(err):
			deleted = append(deleted, r)
		case err != nil:
			return nil, err
		}
	}
	return deleted, nil
}

// startRun deletes the Jobs that a run replaces, and creates its Job.
func startRun(ctx context.Context, c *control.Cluster, cron *batchv1.CronJob, p plan) error {
	for _, r := range p.replace {
		o, err := c.Get(ctx, gr.Jobs, r.Namespace, r.Name, "")
		if err != nil {
			c.Event(cron, corev1.EventTypeWarning, "FailedGet", "Get job: %v", err)
			return err
		}
		if j, ok := o.(*batchv1.Job); !ok || remove(ctx, c, cron, j) != nil {
			return fmt.Errorf("could not replace job %s/%s", r.Namespace, r.Name)
		}
	}
	o, err := c.Create(ctx, gr.Jobs, p.start)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case apierrors.IsAlreadyExists(err):
		// An earlier reconcile may have failed after it created the Job. If another owner created it, it does not count.
		if o, err = c.Get(ctx, gr.Jobs, p.start.Namespace, p.start.Name, ""); err != nil {
			return err
		}
		if !metav1.IsControlledBy(o, cron) || isActive(cron, o.GetUID()) {
			return nil
		}
	case err != nil:
		c.Event(cron, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return err
	default:
		c.Event(cron, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", o.GetName())
	}
	if j, ok := o.(*batchv1.Job); ok {
		recordRun(cron, j, p.at)
	}
	return nil
}

// remove deletes a Job with its Pods, and removes it from the active ones.
func remove(ctx context.Context, c *control.Cluster, cron *batchv1.CronJob, j *batchv1.Job) error {
	err := c.Delete(ctx, gr.Jobs, j.Namespace, j.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &j.UID},
	})
	deletedBefore := apierrors.IsNotFound(err)
	if err != nil && !deletedBefore {
		c.Event(cron, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return err
	}
	removeActive(cron, j.UID)
	if deletedBefore {
		return nil
	}
	c.Event(cron, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", j.Name)
	return nil
}

// store writes the status if it has changed.
func store(ctx context.Context, c *control.Cluster, was, want *batchv1.CronJob) error {
	if apiequality.Semantic.DeepEqual(was.Status, want.Status) {
		return nil
	}
	_, err := c.Update(ctx, gr.CronJobs, want, "status")
	return err
}

func recordEvents(c *control.Cluster, cron *batchv1.CronJob, events []event) {
	for _, e := range events {
		c.Event(cron, e.kind, e.reason, "%s", e.message)
	}
}

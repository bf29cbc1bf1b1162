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
	"proa.dev/kinds/gr"
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
	if len(unexpected(cron, jobs)) > 0 {
		if err := still(ctx, c, shared); err != nil {
			return 0, err
		}
	}
	for _, j := range old(cron, jobs) {
		_ = remove(ctx, c, cron, j) // one that stays has an Event, and another look
	}
	gone, err := missing(ctx, c, unseen(cron, jobs))
	if err != nil {
		return 0, errors.Join(err, store(ctx, c, shared, cron))
	}
	tell(c, cron, review(cron, jobs, gone))
	p := decide(cron, now)
	tell(c, cron, p.news)
	again := p.again
	if p.start != nil {
		if err = still(ctx, c, shared); err == nil {
			err = begin(ctx, c, cron, p)
		}
	}
	return again, errors.Join(err, store(ctx, c, shared, cron))
}

// still makes sure that the CronJob is as the view has it, before a Job is called unexpected, or another is started beside one that
// the view does not show.
func still(ctx context.Context, c *control.Cluster, cron *batchv1.CronJob) error {
	now, err := c.Get(ctx, gr.CronJobs, cron.Namespace, cron.Name, "")
	if err == nil && now.GetResourceVersion() != cron.ResourceVersion {
		err = apierrors.NewConflict(gr.CronJobs, cron.Name, errors.New("the view is behind"))
	}
	return err
}

// missing asks the server which Jobs are really gone.
func missing(ctx context.Context, c *control.Cluster, refs []corev1.ObjectReference) (gone []corev1.ObjectReference, err error) {
	for _, r := range refs {
		_, err := c.Get(ctx, gr.Jobs, r.Namespace, r.Name, "")
		switch {
		case apierrors.IsNotFound(err):
			gone = append(gone, r)
		case err != nil:
			return nil, err
		}
	}
	return gone, nil
}

// begin starts a run, and before that ends those that it replaces.
func begin(ctx context.Context, c *control.Cluster, cron *batchv1.CronJob, p plan) error {
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
		// It is ours if an earlier look was cut off before it could note the run; if somebody else made it, it is not ours to count.
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
		begun(cron, j, p.at)
	}
	return nil
}

// remove deletes a Job with its Pods, and its place among the active ones.
func remove(ctx context.Context, c *control.Cluster, cron *batchv1.CronJob, j *batchv1.Job) error {
	err := c.Delete(ctx, gr.Jobs, j.Namespace, j.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &j.UID},
	})
	gone := apierrors.IsNotFound(err) // somebody was faster
	if err != nil && !gone {
		c.Event(cron, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return err
	}
	drop(cron, j.UID)
	if gone {
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

func tell(c *control.Cluster, cron *batchv1.CronJob, news []event) {
	for _, e := range news {
		c.Event(cron, e.kind, e.reason, "%s", e.message)
	}
}

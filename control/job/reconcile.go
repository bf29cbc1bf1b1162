package job

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	shared, found := control.Get[*batchv1.Job](c, gr.Jobs, k.Namespace, k.Name)
	if !found {
		shared = nil
	}
	if err := removeOrphanFinalizers(ctx, c, k, shared); err != nil {
		return 0, err
	}
	if !found {
		r.forget(k)
		return 0, nil
	}
	if isFinished(shared) || isManagedByOther(shared) {
		r.forget(k)
		return 0, nil
	}
	if m := shared.Spec.CompletionMode; m != nil && *m != batchv1.NonIndexedCompletion && *m != batchv1.IndexedCompletion {
		c.Event(shared, corev1.EventTypeWarning, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
		return 0, nil
	}
	pods, err := claim(ctx, c, shared)
	if err != nil {
		return 0, err
	}
	l, p := decide(shared.DeepCopy(), pods, r.backoffOf(k, shared.UID), time.Now())
	if len(p.create)+len(p.remove) > 0 {
		// A Job that has finished must not start more Pods, and Pods of one that was scaled up must not be deleted.
		if err := workload.CheckUnchanged(ctx, c, gr.Jobs, shared); err != nil {
			return 0, control.IgnoreNotFound(err)
		}
	}
	was := shared
	if len(p.remove) > 0 && l.announce() {
		if was, err = store(ctx, c, shared, l.job); err != nil {
			return 0, err
		}
		l.job = was.DeepCopy()
	}
	created, removed, podErr := apply(ctx, c, shared, p, l.newIndexedPod)
	release := l.updateStatus(created, removed)
	stored, err := store(ctx, c, was, l.job)
	if err != nil {
		return 0, errors.Join(podErr, err)
	}
	r.setBackoff(k, shared.UID, l.backoff)
	recordEvents(c, stored, l.events)
	released, finalizerErr := removeFinalizers(ctx, c, release)
	next := stored.DeepCopy()
	events := l.finish(next, released, finalizerErr == nil)
	if next, err = store(ctx, c, stored, next); err == nil {
		recordEvents(c, next, events)
	}
	return p.again, errors.Join(podErr, finalizerErr, err)
}

// claim adopts and releases Pods, and returns those of a Job.
func claim(ctx context.Context, c *control.Cluster, j *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return nil, err
	}
	claimant := workload.Claimant[*corev1.Pod]{
		Owner: j, Kind: jobKind, On: gr.Jobs, Of: gr.Pods, Selector: selector, Finalizers: []string{batchv1.JobTrackingFinalizer},
	}
	return claimant.Claim(ctx, c, workload.Candidates[*corev1.Pod](c, gr.Pods, j))
}

// store writes the status if it has changed, and returns the stored Job.
func store(ctx context.Context, c *control.Cluster, was, want *batchv1.Job) (*batchv1.Job, error) {
	if apiequality.Semantic.DeepEqual(was.Status, want.Status) {
		return was, nil
	}
	now, err := c.Update(ctx, gr.Jobs, want, "status")
	if err != nil {
		return nil, err
	}
	return now.(*batchv1.Job), nil
}

func recordEvents(c *control.Cluster, j *batchv1.Job, events []event) {
	for _, e := range events {
		c.Event(j, e.kind, e.reason, "%s", e.message)
	}
}

package job

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
)

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	shared, found := control.Get[*batchv1.Job](c, gr.Jobs, k.Namespace, k.Name)
	if !found {
		shared = nil
	}
	if err := sweep(ctx, c, k, shared); err != nil {
		return 0, err
	}
	if !found {
		r.forget(k)
		return 0, nil
	}
	if finished(shared) || managedElsewhere(shared) {
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
	l, p := decide(shared.DeepCopy(), pods, r.recall(k, shared.UID), time.Now())
	if len(p.create)+len(p.remove) > 0 {
		if err := still(ctx, c, shared); err != nil {
			return 0, control.Gone(err)
		}
	}
	was := shared
	if len(p.remove) > 0 && l.announce() {
		if was, err = store(ctx, c, shared, l.job); err != nil {
			return 0, err
		}
		l.job = was.DeepCopy()
	}
	created, removed, failure := act(ctx, c, shared, p)
	release := l.note(created, removed)
	stored, err := store(ctx, c, was, l.job)
	if err != nil {
		return 0, errors.Join(failure, err)
	}
	r.remember(k, shared.UID, l.backoff)
	tell(c, stored, l.fresh)
	released, stuck := free(ctx, c, release)
	next := stored.DeepCopy()
	news := l.count(next, released, stuck == nil)
	if next, err = store(ctx, c, stored, next); err == nil {
		tell(c, next, news)
	}
	return p.again, errors.Join(failure, stuck, err)
}

// claim adopts and releases, and returns the Pods of a Job.
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

// still makes sure that the Job is as the view has it. What Pods do cannot be made undone: a Job that has finished without the view showing
// it must not start more, and one that wants more by now must not lose any.
func still(ctx context.Context, c *control.Cluster, j *batchv1.Job) error {
	now, err := c.Get(ctx, gr.Jobs, j.Namespace, j.Name, "")
	if err == nil && now.GetResourceVersion() != j.ResourceVersion {
		err = apierrors.NewConflict(gr.Jobs, j.Name, errors.New("the view is behind"))
	}
	return err
}

// store writes a status if it differs, and returns the Job as it is then.
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

func tell(c *control.Cluster, j *batchv1.Job, news []event) {
	for _, e := range news {
		c.Event(j, e.kind, e.reason, "%s", e.message)
	}
}

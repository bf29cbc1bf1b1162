package job

import (
	"context"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	if _, is := finished(shared); is || managedElsewhere(shared) {
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
	if len(p.create) > 0 {
		if err := still(ctx, c, shared); err != nil {
			return 0, gone(err)
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

// act makes and removes Pods. It returns how many there are more, and which are gone or going.
func act(ctx context.Context, c *control.Cluster, j *batchv1.Job, p plan) (created int, removed []*corev1.Pod, err error) {
	if len(p.create) > 0 {
		created, err = workload.SlowStart(len(p.create), func(i int) error {
			_, err := workload.Create(ctx, c, j, p.create[i])
			return err
		})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil // nothing can be made there any more
		}
		return created, nil, err
	}
	gone := make([]bool, len(p.remove))
	_, err = workload.Together(len(p.remove), func(i int) error {
		err := remove(ctx, c, j, p.remove[i], p.tracked)
		gone[i] = err == nil
		return err
	})
	for i, is := range gone {
		if is {
			removed = append(removed, p.remove[i])
		}
	}
	return 0, removed, err
}

// still makes sure that the Job is as the view has it. Pods that run cannot be made undone: a Job that has finished without the view showing
// it must not start more.
func still(ctx context.Context, c *control.Cluster, j *batchv1.Job) error {
	now, err := c.Get(ctx, gr.Jobs, j.Namespace, j.Name, "")
	if err == nil && now.GetResourceVersion() != j.ResourceVersion {
		err = apierrors.NewConflict(gr.Jobs, j.Name, errors.New("the view is behind"))
	}
	return err
}

func remove(ctx context.Context, c *control.Cluster, j *batchv1.Job, p *corev1.Pod, tracked bool) error {
	if !tracked && hasFinalizer(p) {
		// With the version of the view: a Pod that has finished meanwhile has to be counted instead.
		if _, err := c.Update(ctx, gr.Pods, untracked(p), ""); err != nil {
			return gone(err)
		}
	}
	return gone(workload.Delete(ctx, c, j, p))
}

// gone forgives that something is not there any more.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
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

// free takes the finalizers from Pods and returns those that have none any more.
func free(ctx context.Context, c *control.Cluster, pods []*corev1.Pod) (sets.Set[types.UID], error) {
	ok := make([]bool, len(pods))
	_, err := workload.Together(len(pods), func(i int) error {
		err := release(ctx, c, pods[i])
		ok[i] = err == nil
		return err
	})
	out := sets.New[types.UID]()
	for i, is := range ok {
		if is {
			out.Insert(pods[i].UID)
		}
	}
	return out, err
}

// release takes the finalizer from a Pod that is noted. Whatever else has changed about it does not matter.
func release(ctx context.Context, c *control.Cluster, p *corev1.Pod) error {
	_, err := c.Update(ctx, gr.Pods, untracked(p), "")
	for range 3 {
		if !apierrors.IsConflict(err) {
			break
		}
		now, miss := c.Get(ctx, gr.Pods, p.Namespace, p.Name, "")
		if miss != nil {
			return gone(miss)
		}
		fresh, is := now.(*corev1.Pod)
		if !is || fresh.UID != p.UID || !hasFinalizer(fresh) {
			return nil
		}
		_, err = c.Update(ctx, gr.Pods, untracked(fresh), "")
	}
	return gone(err)
}

func untracked(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	return out
}

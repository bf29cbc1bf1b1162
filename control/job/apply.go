package job

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// apply creates and deletes the Pods of a plan. It returns how many were created, and which were deleted.
func apply(ctx context.Context, c *control.Cluster, j *batchv1.Job, p plan, newPod func(index int) *corev1.Pod) (created int,
	removed []*corev1.Pod, err error) {
	if len(p.create) > 0 {
		created, err = workload.SlowStart(len(p.create), func(i int) error {
			_, err := workload.Create(ctx, c, j, newPod(p.create[i]))
			return err
		})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil // nothing can be created there any more
		}
		return created, nil, err
	}
	deleted := make([]bool, len(p.remove))
	_, err = workload.Parallel(len(p.remove), func(i int) error {
		err := remove(ctx, c, j, p.remove[i], p.tracked)
		deleted[i] = err == nil
		return err
	})
	for i, is := range deleted {
		if is {
			removed = append(removed, p.remove[i])
		}
	}
	return 0, removed, err
}

func remove(ctx context.Context, c *control.Cluster, j *batchv1.Job, p *corev1.Pod, tracked bool) error {
	if !tracked && hasFinalizer(p) {
		// The write has the resourceVersion of the view, and conflicts if the Pod has finished meanwhile and must be counted.
		if _, err := c.Update(ctx, gr.Pods, withoutFinalizer(p), ""); err != nil {
			return control.IgnoreNotFound(err)
		}
	}
	return control.IgnoreNotFound(workload.Delete(ctx, c, j, p))
}

// removeFinalizers removes the finalizer from Pods, and returns the UIDs of those that have none any more.
func removeFinalizers(ctx context.Context, c *control.Cluster, pods []*corev1.Pod) (sets.Set[types.UID], error) {
	ok := make([]bool, len(pods))
	_, err := workload.Parallel(len(pods), func(i int) error {
		err := removeFinalizer(ctx, c, pods[i])
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

// removeFinalizer removes the finalizer from a Pod that the status accounts for. It retries when the Pod has changed otherwise.
func removeFinalizer(ctx context.Context, c *control.Cluster, p *corev1.Pod) error {
	_, err := c.Update(ctx, gr.Pods, withoutFinalizer(p), "")
	for range 3 {
		if !apierrors.IsConflict(err) {
			break
		}
		o, getErr := c.Get(ctx, gr.Pods, p.Namespace, p.Name, "")
		if getErr != nil {
			return control.IgnoreNotFound(getErr)
		}
		stored, is := o.(*corev1.Pod)
		if !is || stored.UID != p.UID || !hasFinalizer(stored) {
			return nil
		}
		_, err = c.Update(ctx, gr.Pods, withoutFinalizer(stored), "")
	}
	return control.IgnoreNotFound(err)
}

func withoutFinalizer(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	return out
}

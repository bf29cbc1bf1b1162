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
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
)

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

func remove(ctx context.Context, c *control.Cluster, j *batchv1.Job, p *corev1.Pod, tracked bool) error {
	if !tracked && hasFinalizer(p) {
		// With the version of the view: a Pod that has finished meanwhile has to be counted instead.
		if _, err := c.Update(ctx, gr.Pods, untracked(p), ""); err != nil {
			return control.Gone(err)
		}
	}
	return control.Gone(workload.Delete(ctx, c, j, p))
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
			return control.Gone(miss)
		}
		fresh, is := now.(*corev1.Pod)
		if !is || fresh.UID != p.UID || !hasFinalizer(fresh) {
			return nil
		}
		_, err = c.Update(ctx, gr.Pods, untracked(fresh), "")
	}
	return control.Gone(err)
}

func untracked(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	return out
}

package podgc

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
)

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	now := time.Now()
	if k.Name == "" {
		if err := end(ctx, c, leaving(onNode(c, "")), nil); err != nil {
			return 0, err
		}
		return r.count(ctx, c, now)
	}
	node, there := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
	switch {
	case !there:
		return r.without(ctx, c, k.Name, now)
	case outOfService(node):
		r.found(k.Name)
		return 0, end(ctx, c, leaving(onNode(c, k.Name)), nil)
	}
	r.found(k.Name)
	return 0, nil
}

// count removes Pods that have ended when there are too many.
func (r *reconciler) count(ctx context.Context, c *control.Cluster, now time.Time) (time.Duration, error) {
	if r.threshold <= 0 {
		return 0, nil
	}
	if wait := r.tooSoon(now); wait > 0 {
		return wait, nil
	}
	pods := slices.Collect(control.By[*corev1.Pod](c, gr.Pods, ended(), "ended"))
	return 0, end(ctx, c, surplus(pods, r.threshold), nil)
}

// without gives up the Pods of a node that is not there, and was not for a while.
func (r *reconciler) without(ctx context.Context, c *control.Cluster, node string, now time.Time) (time.Duration, error) {
	pods := orphans(onNode(c, node))
	if len(pods) == 0 {
		r.found(node)
		return 0, nil
	}
	if wait := quarantine - r.lost(node, now); wait > 0 {
		return wait, nil
	}
	if _, err := c.Get(ctx, gr.Nodes, "", node, ""); !apierrors.IsNotFound(err) {
		return quarantine, err // the view is behind, or nobody can tell
	}
	err := end(ctx, c, pods, nodeGone())
	if err == nil {
		r.found(node) // another Pod that turns up there waits anew
	}
	return 0, err
}

// end marks Pods as failed, and deletes them without delay.
func end(ctx context.Context, c *control.Cluster, pods []*corev1.Pod, why *corev1.PodCondition) error {
	_, err := workload.Together(len(pods), func(i int) error {
		p := pods[i]
		if f := failed(p, why, time.Now()); f != nil {
			if _, err := c.Update(ctx, gr.Pods, f, "status"); err != nil {
				return control.Gone(err)
			}
		}
		return control.Gone(c.Delete(ctx, gr.Pods, p.Namespace, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(p.GetUID())},
		}))
	})
	return err
}

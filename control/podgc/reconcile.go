package podgc

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	now := time.Now()
	if k.Name == "" {
		if err := failAndDelete(ctx, c, terminating(podsOnNode(c, "")), nil); err != nil {
			return 0, err
		}
		return r.deleteSurplus(ctx, c, now)
	}
	node, exists := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
	switch {
	case !exists:
		return r.deleteOrphaned(ctx, c, k.Name, now)
	case isOutOfService(node):
		r.forget(k.Name)
		return 0, failAndDelete(ctx, c, terminating(podsOnNode(c, k.Name)), nil)
	}
	r.forget(k.Name)
	return 0, nil
}

// deleteSurplus deletes terminal Pods above the threshold.
func (r *reconciler) deleteSurplus(ctx context.Context, c *control.Cluster, now time.Time) (time.Duration, error) {
	if r.threshold <= 0 {
		return 0, nil
	}
	if wait := r.untilNextCount(now); wait > 0 {
		return wait, nil
	}
	pods := slices.Collect(control.By[*corev1.Pod](c, gr.Pods, byTerminal(), "ended"))
	return 0, failAndDelete(ctx, c, surplus(pods, r.threshold), nil)
}

// deleteOrphaned deletes the Pods of a node that has not existed for a while.
func (r *reconciler) deleteOrphaned(ctx context.Context, c *control.Cluster, node string, now time.Time) (time.Duration, error) {
	pods := orphanedPods(podsOnNode(c, node))
	if len(pods) == 0 {
		r.forget(node)
		return 0, nil
	}
	if wait := quarantine - r.missingFor(node, now); wait > 0 {
		return wait, nil
	}
	if _, err := c.Get(ctx, gr.Nodes, "", node, ""); !apierrors.IsNotFound(err) {
		return quarantine, err // the node exists and the view lags behind, or the server cannot tell
	}
	err := failAndDelete(ctx, c, pods, nodeDeletedCondition())
	if err == nil {
		r.forget(node) // further Pods of the node wait for a new quarantine
	}
	return 0, err
}

// failAndDelete sets the phase of Pods to Failed, and deletes them without a grace period.
func failAndDelete(ctx context.Context, c *control.Cluster, pods []*corev1.Pod, why *corev1.PodCondition) error {
	_, err := workload.Parallel(len(pods), func(i int) error {
		p := pods[i]
		if f := withFailedPhase(p, why, time.Now()); f != nil {
			if _, err := c.Update(ctx, gr.Pods, f, "status"); err != nil {
				return control.IgnoreNotFound(err)
			}
		}
		return control.IgnoreNotFound(c.Delete(ctx, gr.Pods, p.Namespace, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(p.GetUID())},
		}))
	})
	return err
}

package daemonset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// reconcile brings one set closer to its desired state.
func reconcile(ctx context.Context, c *control.Cluster, k control.Key, podBackoff *backoff) (time.Duration, error) {
	ds, found := control.Get[*appsv1.DaemonSet](c, gr.DaemonSets, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	matches := workload.Selector(ds.Spec.Selector)
	switch {
	case matches == nil:
		return 0, nil
	case matches.Empty():
		c.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return 0, nil
	case ds.DeletionTimestamp != nil: // its revisions may be deleted before its Pods, so its status is not known
		return 0, nil
	}
	revisions := workload.Claimant[*appsv1.ControllerRevision]{Owner: ds, Kind: gvk, On: gr.DaemonSets, Of: gr.ControllerRevisions,
		Selector: matches}
	all, err := revisions.Claim(ctx, c, workload.Candidates[*appsv1.ControllerRevision](c, gr.ControllerRevisions, ds))
	if err != nil {
		return 0, err
	}
	claims := workload.Claimant[*corev1.Pod]{Owner: ds, Kind: gvk, On: gr.DaemonSets, Of: gr.Pods, Selector: matches}
	pods, err := claims.Claim(ctx, c, workload.Candidates[*corev1.Pod](c, gr.Pods, ds))
	if err != nil {
		return 0, err
	}
	h, err := loadHistory(ctx, c, ds, all, pods)
	if err != nil {
		return 0, fmt.Errorf("failed to construct revisions of DaemonSet: %w", err)
	}
	now := time.Now()
	p := decide(&state{
		ds: ds, nodes: slices.Collect(control.List[*corev1.Node](c, gr.Nodes, "")), pods: pods, hash: h.current.Labels[hashLabel], now: now,
		removalDelay: func(node string) time.Duration { return podBackoff.left(backoffKey(ds, node), now) },
	})
	for _, node := range p.failed {
		podBackoff.next(backoffKey(ds, node), now)
	}
	done := apply(ctx, c, ds, h.current.Labels[hashLabel], &p)
	if done == nil {
		done = h.truncate(ctx, c, ds, pods)
	}
	return p.again, cmp.Or(done, writeStatus(ctx, c, ds, &p.status))
}

// apply creates and deletes the Pods of a plan. It is no error that a namespace which is being deleted accepts no new ones.
func apply(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, hash string, p *plan) error {
	for _, n := range p.events {
		c.Event(ds, n.kind, n.reason, "%s", n.message)
	}
	_, created := workload.SlowStart(len(p.create), func(i int) error {
		_, err := workload.Create(ctx, c, ds, newPod(ds, hash, p.create[i]))
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	})
	_, removed := workload.Parallel(len(p.remove), func(i int) error {
		err := workload.Delete(ctx, c, ds, p.remove[i])
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return cmp.Or(created, removed)
}

// writeStatus stores the status of a set if it has changed.
func writeStatus(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, status *appsv1.DaemonSetStatus) error {
	if apiequality.Semantic.DeepEqual(&ds.Status, status) {
		return nil
	}
	next := ds.DeepCopy()
	next.Status = *status
	_, err := c.Update(ctx, gr.DaemonSets, next, "status")
	return err
}

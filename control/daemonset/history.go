package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/revision"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// history is the revision history of a set: the current revision, and the older ones.
type history struct {
	current *appsv1.ControllerRevision
	old     []*appsv1.ControllerRevision // sorted
}

// loadHistory returns the history of a set, and creates the revision of its template if there is none. It gives revisions without a
// hash label one, and merges revisions with the same template.
func loadHistory(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, all []*appsv1.ControllerRevision,
	pods []*corev1.Pod) (*history, error) {
	for i, r := range all {
		if r.Labels[hashLabel] != "" {
			continue
		}
		next := r.DeepCopy()
		next.Labels = revision.WithLabel(next.Labels, hashLabel, next.Name)
		var err error
		if all[i], err = revision.Of(c.Update(ctx, gr.ControllerRevisions, next, "")); err != nil {
			return nil, err
		}
	}
	revision.Sort(all)
	patch, err := revision.Patch(&ds.Spec.Template)
	if err != nil {
		return nil, err
	}
	found := revision.Find(all, patch)
	h := &history{found.Current, found.Others}
	switch {
	case h.current == nil:
		h.current, err = createRevision(ctx, c, ds, patch, found.Number)
		return h, err
	case len(found.Twins) > 0:
		if err := mergeTwins(ctx, c, h.current, found.Twins, pods); err != nil {
			return nil, err
		}
	}
	if h.current.Revision != found.Number {
		next := h.current.DeepCopy()
		next.Revision = found.Number
		h.current, err = revision.Of(c.Update(ctx, gr.ControllerRevisions, next, ""))
	}
	return h, err
}

// createRevision creates a revision. If its name is taken by a revision with other data, it increases the collision count in the
// status, which gives another name at the next reconcile.
func createRevision(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, patch []byte, number int64) (*appsv1.ControllerRevision,
	error) {
	hash, err := workload.Hash(&ds.Spec.Template, ds.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	name := ds.Name + "-" + hash
	r := revision.New(ds, gvk, name, revision.WithLabel(ds.Spec.Template.Labels, hashLabel, hash), patch)
	r.Revision = number
	made, createErr := revision.Of(c.Create(ctx, gr.ControllerRevisions, r))
	if !apierrors.IsAlreadyExists(createErr) {
		return made, createErr
	}
	have, err := revision.Of(c.Get(ctx, gr.ControllerRevisions, ds.Namespace, name, ""))
	if err != nil || revision.HasPatch(have, patch) {
		return have, err
	}
	next := ds.DeepCopy()
	if next.Status.CollisionCount == nil {
		next.Status.CollisionCount = new(int32(0))
	}
	*next.Status.CollisionCount++
	if _, err := c.Update(ctx, gr.DaemonSets, next, "status"); err != nil {
		return nil, err
	}
	return nil, createErr
}

// mergeTwins keeps one of several revisions with the same template: it relabels the Pods of the others, and deletes the others.
func mergeTwins(ctx context.Context, c *control.Cluster, keep *appsv1.ControllerRevision, twins []*appsv1.ControllerRevision,
	pods []*corev1.Pod) error {
	isTwin := map[string]bool{}
	for _, r := range twins {
		isTwin[r.Labels[hashLabel]] = true
	}
	for i, pod := range pods {
		if hash := pod.Labels[hashLabel]; !isTwin[hash] || hash == keep.Labels[hashLabel] {
			continue
		}
		next := pod.DeepCopy()
		next.Labels[hashLabel] = keep.Labels[hashLabel]
		o, err := c.Update(ctx, gr.Pods, next, "")
		if err != nil {
			return err
		}
		pods[i] = o.(*corev1.Pod)
	}
	return deleteRevisions(ctx, c, twins)
}

// truncate deletes the oldest revisions without Pods, until only revisionHistoryLimit are left.
func (h *history) truncate(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, pods []*corev1.Pod) error {
	live := map[string]bool{}
	for _, pod := range pods {
		live[pod.Labels[hashLabel]] = true
	}
	limit := 10
	if ds.Spec.RevisionHistoryLimit != nil {
		limit = int(*ds.Spec.RevisionHistoryLimit)
	}
	return deleteRevisions(ctx, c,
		revision.ToDelete(h.old, limit, func(r *appsv1.ControllerRevision) bool { return live[r.Labels[hashLabel]] }))
}

// deleteRevisions deletes revisions, but not others that have got their names.
func deleteRevisions(ctx context.Context, c *control.Cluster, revisions []*appsv1.ControllerRevision) error {
	for _, r := range revisions {
		err := c.Delete(ctx, gr.ControllerRevisions, r.Namespace, r.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

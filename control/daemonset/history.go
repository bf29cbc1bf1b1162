package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/revision"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// history is the revision that a set has now, and those it had.
type history struct {
	current *appsv1.ControllerRevision
	old     []*appsv1.ControllerRevision // sorted
}

// look finds the revisions of a set among its own, and stores the one that its template needs. Every revision has a hash
// that Pods can be told by, and no two hold the same.
func look(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, all []*appsv1.ControllerRevision, pods []*corev1.Pod) (*history, error) {
	for i, r := range all {
		if r.Labels[hashLabel] != "" {
			continue
		}
		next := r.DeepCopy()
		next.Labels = revision.Labelled(next.Labels, hashLabel, next.Name)
		var err error
		if all[i], err = stored(c.Update(ctx, gr.ControllerRevisions, next, "")); err != nil {
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
		h.current, err = record(ctx, c, ds, patch, found.Number)
		return h, err
	case len(found.Twins) > 0:
		if err := merge(ctx, c, h.current, found.Twins, pods); err != nil {
			return nil, err
		}
	}
	if h.current.Revision != found.Number {
		next := h.current.DeepCopy()
		next.Revision = found.Number
		h.current, err = stored(c.Update(ctx, gr.ControllerRevisions, next, ""))
	}
	return h, err
}

// record stores a revision. Its name may be taken by one with other data: then the status counts that, which gives
// another name at the next look.
func record(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, patch []byte, number int64) (*appsv1.ControllerRevision, error) {
	hash, err := workload.Hash(&ds.Spec.Template, ds.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	name := ds.Name + "-" + hash
	r := revision.New(ds, gvk, name, revision.Labelled(ds.Spec.Template.Labels, hashLabel, hash), patch)
	r.Revision = number
	made, taken := stored(c.Create(ctx, gr.ControllerRevisions, r))
	if !apierrors.IsAlreadyExists(taken) {
		return made, taken
	}
	have, err := stored(c.Get(ctx, gr.ControllerRevisions, ds.Namespace, name, ""))
	if err != nil || revision.Same(have, patch) {
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
	return nil, taken
}

// merge leaves one of several revisions that hold the same. Pods of the others become Pods of the one, before those go.
func merge(ctx context.Context, c *control.Cluster, keep *appsv1.ControllerRevision, twins []*appsv1.ControllerRevision, pods []*corev1.Pod) error {
	same := map[string]bool{}
	for _, r := range twins {
		same[r.Labels[hashLabel]] = true
	}
	for i, pod := range pods {
		if hash := pod.Labels[hashLabel]; !same[hash] || hash == keep.Labels[hashLabel] {
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
	return forget(ctx, c, twins)
}

// truncate forgets the oldest revisions that no Pod is of, so that only as many are left as the set wants.
func (h *history) truncate(ctx context.Context, c *control.Cluster, ds *appsv1.DaemonSet, pods []*corev1.Pod) error {
	live := map[string]bool{}
	for _, pod := range pods {
		live[pod.Labels[hashLabel]] = true
	}
	limit := 10
	if ds.Spec.RevisionHistoryLimit != nil {
		limit = int(*ds.Spec.RevisionHistoryLimit)
	}
	return forget(ctx, c, revision.Surplus(h.old, limit, func(r *appsv1.ControllerRevision) bool { return live[r.Labels[hashLabel]] }))
}

// forget deletes revisions, and never others that have got their names.
func forget(ctx context.Context, c *control.Cluster, revisions []*appsv1.ControllerRevision) error {
	for _, r := range revisions {
		err := c.Delete(ctx, gr.ControllerRevisions, r.Namespace, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// stored gives an object back its type.
func stored(o kind.Object, err error) (*appsv1.ControllerRevision, error) {
	r, _ := o.(*appsv1.ControllerRevision)
	return r, err
}

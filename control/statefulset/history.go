package statefulset

import (
	"bytes"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/revision"
	"proa.dev/kinds/lib/gr"
)

// history is the revision history of a set.
type history struct {
	all             []*appsv1.ControllerRevision // sorted
	current, update *appsv1.ControllerRevision
	patch           []byte // of the current template
	collisions      int32
}

// isEquivalent reports whether a revision differs from a template only by defaults that were introduced after the revision was
// created.
func isEquivalent(set *appsv1.StatefulSet, r *appsv1.ControllerRevision, patch []byte, defaults func(*appsv1.StatefulSet)) bool {
	then, err := revision.Restore(set, r, &appsv1.StatefulSet{})
	if err != nil {
		return false
	}
	defaults(then)
	was, err := revision.Patch(&then.Spec.Template)
	return err == nil && bytes.Equal(was, patch)
}

// loadHistory returns the history of a set, and creates the revision of its template if there is none. For a set that is being
// deleted it creates none, and update may be nil.
func loadHistory(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, all []*appsv1.ControllerRevision,
	defaults func(*appsv1.StatefulSet)) (*history, error) {
	revision.Sort(all)
	patch, err := revision.Patch(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	h := &history{all: all, patch: patch}
	if set.Status.CollisionCount != nil {
		h.collisions = *set.Status.CollisionCount
	}
	found := revision.Find(all, patch)
	h.update = found.Current
	switch {
	case set.DeletionTimestamp != nil:
	case found.Current != nil && found.Current.Revision != found.Number:
		next := found.Current.DeepCopy()
		next.Revision = found.Number
		h.update, err = revision.Of(c.Update(ctx, gr.ControllerRevisions, next, ""))
	case found.Current != nil:
	case len(all) > 0 && isEquivalent(set, all[len(all)-1], patch, defaults):
		h.update = all[len(all)-1]
	default:
		h.update, err = h.createRevision(ctx, c, set, found.Number)
	}
	h.current = h.update
	for _, r := range all {
		if r.Name == set.Status.CurrentRevision {
			h.current = r
		}
	}
	return h, err
}

// createRevision creates a revision. If its name is taken by a revision with other data, it increases the collision count in the
// status, which gives another name at the next reconcile.
func (h *history) createRevision(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet,
	number int64) (*appsv1.ControllerRevision, error) {
	hash := revision.Hash(h.patch, &h.collisions)
	name := revision.Name(set.Name, hash)
	r := revision.New(set, gvk, name, revision.WithLabel(set.Spec.Template.Labels, revision.HashLabel, hash), h.patch)
	r.Revision = number
	made, createErr := revision.Of(c.Create(ctx, gr.ControllerRevisions, r))
	if !apierrors.IsAlreadyExists(createErr) {
		return made, createErr
	}
	have, err := revision.Of(c.Get(ctx, gr.ControllerRevisions, set.Namespace, name, ""))
	if err != nil || revision.HasPatch(have, h.patch) {
		return have, err
	}
	next := set.DeepCopy()
	next.Status.CollisionCount = new(h.collisions + 1)
	if _, err := c.Update(ctx, gr.StatefulSets, next, "status"); err != nil {
		return nil, err
	}
	return nil, createErr
}

// version returns a revision with the set as it was then.
func (h *history) version(set *appsv1.StatefulSet, r *appsv1.ControllerRevision) (version, error) {
	if revision.HasPatch(r, h.patch) {
		return version{r.Name, set}, nil
	}
	then, err := revision.Restore(set, r, &appsv1.StatefulSet{})
	return version{r.Name, then}, err
}

// truncate deletes the oldest revisions that neither the status nor a Pod uses, until only revisionHistoryLimit are left.
func (h *history) truncate(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, pods []*corev1.Pod) error {
	live := map[string]bool{h.current.Name: true, h.update.Name: true}
	for _, pod := range pods {
		live[podRevision(pod)] = true
	}
	keep := int(historyLimit(set))
	for _, r := range h.all {
		if live[r.Name] {
			keep++
		}
	}
	for _, r := range revision.ToDelete(h.all, keep, func(r *appsv1.ControllerRevision) bool { return live[r.Name] }) {
		err := c.Delete(ctx, gr.ControllerRevisions, r.Namespace, r.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func historyLimit(set *appsv1.StatefulSet) int32 {
	if set.Spec.RevisionHistoryLimit == nil {
		return 10
	}
	return *set.Spec.RevisionHistoryLimit
}

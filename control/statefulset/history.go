package statefulset

import (
	"bytes"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/revision"
	"proa.dev/kinds/gr"
)

// history is what a set's revisions are to it.
type history struct {
	all             []*appsv1.ControllerRevision // sorted
	current, update *appsv1.ControllerRevision
	patch           []byte // of the template that the set has
	collisions      int32
}

// equivalent says that a revision was made before some field had a default: it differs from a template only by what
// defaults have added since.
func equivalent(set *appsv1.StatefulSet, r *appsv1.ControllerRevision, patch []byte, defaults func(*appsv1.StatefulSet)) bool {
	then, err := revision.Restore(set, r, &appsv1.StatefulSet{})
	if err != nil {
		return false
	}
	defaults(then)
	was, err := revision.Patch(&then.Spec.Template)
	return err == nil && bytes.Equal(was, patch)
}

// look finds the revisions of a set, and stores the one that its template needs. For a set that is being
// deleted it stores nothing, and update may be nil.
func look(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, all []*appsv1.ControllerRevision, defaults func(*appsv1.StatefulSet)) (*history, error) {
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
		h.update, err = stored(c.Update(ctx, gr.ControllerRevisions, next, ""))
	case found.Current != nil:
	case len(all) > 0 && equivalent(set, all[len(all)-1], patch, defaults):
		h.update = all[len(all)-1]
	default:
		h.update, err = h.record(ctx, c, set, found.Number)
	}
	h.current = h.update
	for _, r := range all {
		if r.Name == set.Status.CurrentRevision {
			h.current = r
		}
	}
	return h, err
}

// record stores a revision. Its name may be taken by one with other data: then the status counts that, which gives
// another name at the next look.
func (h *history) record(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, number int64) (*appsv1.ControllerRevision, error) {
	hash := revision.Hash(h.patch, &h.collisions)
	name := revision.Name(set.Name, hash)
	r := revision.New(set, gvk, name, revision.Labelled(set.Spec.Template.Labels, revision.HashLabel, hash), h.patch)
	r.Revision = number
	made, taken := stored(c.Create(ctx, gr.ControllerRevisions, r))
	if !apierrors.IsAlreadyExists(taken) {
		return made, taken
	}
	have, err := stored(c.Get(ctx, gr.ControllerRevisions, set.Namespace, name, ""))
	if err != nil || revision.Same(have, h.patch) {
		return have, err
	}
	next := set.DeepCopy()
	next.Status.CollisionCount = new(h.collisions + 1)
	if _, err := c.Update(ctx, gr.StatefulSets, next, "status"); err != nil {
		return nil, err
	}
	return nil, taken
}

// version is a revision as the plan needs it.
func (h *history) version(set *appsv1.StatefulSet, r *appsv1.ControllerRevision) (version, error) {
	if revision.Same(r, h.patch) {
		return version{r.Name, set}, nil
	}
	then, err := revision.Restore(set, r, &appsv1.StatefulSet{})
	return version{r.Name, then}, err
}

// truncate forgets revisions: those that neither the status nor a Pod names are history, and only so many are kept.
func (h *history) truncate(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, pods []*corev1.Pod) error {
	live := map[string]bool{h.current.Name: true, h.update.Name: true}
	for _, pod := range pods {
		live[podRevision(pod)] = true
	}
	keep := int(limit(set))
	for _, r := range h.all {
		if live[r.Name] {
			keep++
		}
	}
	for _, r := range revision.Surplus(h.all, keep, func(r *appsv1.ControllerRevision) bool { return live[r.Name] }) {
		err := c.Delete(ctx, gr.ControllerRevisions, r.Namespace, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func limit(set *appsv1.StatefulSet) int32 {
	if set.Spec.RevisionHistoryLimit == nil {
		return 10
	}
	return *set.Spec.RevisionHistoryLimit
}

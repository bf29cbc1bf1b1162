// Package metadata explains objects by what all of them have: when they were changed, which change their controller has acted on, and what
// keeps them when they are deleted.
package metadata

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/why/answer"
)

// Patience is how long a controller may take to act on a change before the object counts as stuck.
const Patience = 10 * time.Second

// NotActed explains an object whose controller has not acted on its last change.
func NotActed(a *answer.Answer, meta *metav1.ObjectMeta, observed int64, now time.Time) *answer.Answer {
	changed := LastChange(meta)
	a.Cause = fmt.Sprintf("The controller has not acted on the last change of the %s (generation %d, observed %d); it may not be running.",
		a.Object.Kind, meta.Generation, observed)
	if now.Sub(changed) < Patience {
		a.State = answer.Waiting
		a.Cause = fmt.Sprintf("The %s was changed %s ago, and its controller has not acted on it yet.", a.Object.Kind, answer.Ago(now, changed))
	}
	return a.At(hop.Control).Because(a.Object, "status.observedGeneration", fmt.Sprint(observed), changed)
}

// LastChange returns when somebody last wrote the object itself, as far as its managedFields tell; not its status.
func LastChange(meta *metav1.ObjectMeta) time.Time {
	at := meta.CreationTimestamp.Time
	for _, f := range meta.ManagedFields {
		if f.Subresource != "status" && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// Ending explains an object that is being deleted and is still there.
func Ending(a *answer.Answer, meta *metav1.ObjectMeta, now time.Time) *answer.Answer {
	a.At(hop.Control).Because(a.Object, "metadata.deletionTimestamp", meta.DeletionTimestamp.UTC().Format(time.RFC3339),
		meta.DeletionTimestamp.Time)
	if slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents) {
		a.State, a.Cause = answer.Waiting, "The "+a.Object.Kind+" is deleted once everything that it owns is deleted."
		return a.Because(a.Object, "metadata.finalizers", strings.Join(meta.Finalizers, ", "), time.Time{})
	}
	a.Cause = "The " + a.Object.Kind + " is being deleted, and the finalizers " + strings.Join(meta.Finalizers, ", ") +
		" keep it; whoever added them has to remove them."
	switch {
	case len(meta.Finalizers) == 0:
		a.State, a.Cause = answer.Waiting, "The "+a.Object.Kind+" is being deleted."
	case now.Sub(meta.DeletionTimestamp.Time) < Patience:
		a.State = answer.Waiting
	}
	return a.Because(a.Object, "metadata.finalizers", strings.Join(meta.Finalizers, ", "), time.Time{}).
		Do("find out why the owner of the finalizer does not remove it: the controller may be gone or failing")
}

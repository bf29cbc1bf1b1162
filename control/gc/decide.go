package gc

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// standing is what a reference leads to.
type standing uint8

const (
	solid    standing = iota + 1 // the owner is there
	dangling                     // the owner is not there
	waiting                      // the owner is being deleted and waits for its dependents
	unknown                      // nobody can tell
)

// verdict is what to do about an object. The zero value is nothing.
type verdict struct {
	// unlink are the owners it should no longer name.
	unlink []types.UID
	// unblock makes it block none of its owners before it is deleted.
	unblock bool
	// remove deletes it in a way; empty for not.
	remove metav1.DeletionPropagation
}

// facts are those about the dependents of an object that decide asks for only when they matter.
type facts struct {
	owns func() bool
	// loops says that a dependent waits for its own dependents, the object maybe among them.
	loops func() bool
}

// decide says what to do about an object, given where its references lead.
func decide(o metav1.Object, stand []standing, f facts) verdict {
	refs := o.GetOwnerReferences()
	if o.GetDeletionTimestamp() != nil || len(refs) == 0 || slices.Contains(stand, unknown) {
		return verdict{}
	}
	if slices.Contains(stand, solid) {
		var v verdict
		for i, s := range stand {
			// An owner that waits would wait forever for an object that stays.
			if s != solid {
				v.unlink = append(v.unlink, refs[i].UID)
			}
		}
		return v
	}
	if slices.Contains(stand, waiting) && f.owns() {
		return verdict{unblock: f.loops(), remove: metav1.DeletePropagationForeground}
	}
	switch {
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return verdict{remove: metav1.DeletePropagationOrphan}
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return verdict{remove: metav1.DeletePropagationForeground}
	}
	return verdict{remove: metav1.DeletePropagationBackground}
}

// waits says that an owner is being deleted in the foreground.
func waits(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphans says that an owner is being deleted and leaves its dependents behind.
func orphans(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// blocking says that a dependent keeps an owner that waits.
func blocking(dependent metav1.Object, owner types.UID) bool {
	return slices.ContainsFunc(dependent.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner && blocks(r) })
}

package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerState is the state of the owner that a reference names.
type ownerState uint8

const (
	ownerExists  ownerState = iota + 1 // the owner exists
	ownerAbsent                        // the owner does not exist
	ownerWaits                         // the owner is being deleted and waits for its dependents
	ownerUnknown                       // the owner's kind is not served, or the reference is invalid
)

// action is what to do with an object. The zero value is nothing.
type action struct {
	// unlink are the owners whose references are removed.
	unlink []types.UID
	// unblock clears blockOwnerDeletion of all references before the object is deleted.
	unblock bool
	// remove is the propagation policy with which the object is deleted; empty if it is kept.
	remove metav1.DeletionPropagation
}

// dependentFacts are predicates about the dependents of an object, which decide calls only when needed.
type dependentFacts struct {
	hasDependents func() bool
	// dependentWaits reports whether a dependent waits for its own dependents, which may include the object: a cycle.
	dependentWaits func() bool
}

// decide returns what to do with an object, given the states of its owners.
func decide(o metav1.Object, stand []ownerState, f dependentFacts) action {
	refs := o.GetOwnerReferences()
	if o.GetDeletionTimestamp() != nil || len(refs) == 0 || slices.Contains(stand, ownerUnknown) {
		return action{}
	}
	if slices.Contains(stand, ownerExists) {
		var v action
		for i, s := range stand {
			// An owner that waits would wait forever for an object that is kept.
			if s != ownerExists {
				v.unlink = append(v.unlink, refs[i].UID)
			}
		}
		return v
	}
	if slices.Contains(stand, ownerWaits) && f.hasDependents() {
		return action{unblock: f.dependentWaits(), remove: metav1.DeletePropagationForeground}
	}
	switch {
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return action{remove: metav1.DeletePropagationOrphan}
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return action{remove: metav1.DeletePropagationForeground}
	}
	return action{remove: metav1.DeletePropagationBackground}
}

// waitsForDependents reports whether an owner is being deleted in the foreground.
func waitsForDependents(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphansDependents reports whether an owner is being deleted and orphans its dependents.
func orphansDependents(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// blocksOwner reports whether a dependent blocks the deletion of an owner.
func blocksOwner(dependent metav1.Object, owner types.UID) bool {
	return slices.ContainsFunc(dependent.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == owner && isBlocking(r) })
}

package control

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IgnoreObsolete returns nil for the errors of a write that is no longer needed: another client has created the object, the
// object was deleted, or its namespace is being deleted or no longer exists. Other errors are returned as they are.
func IgnoreObsolete(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreNotFound returns nil for a NotFound error: the object of a write was deleted meanwhile, and a later reconcile sees that if it
// has to do something about it. Other errors are returned as they are.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

package control

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
)

// Living says that a namespace exists and is not being deleted, so that a loop may still put something into it.
func Living(namespaces client.View, name string) bool {
	o, found := namespaces.Get("", name)
	return found && o.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating && o.GetDeletionTimestamp() == nil
}

// Settled returns nil for the errors of a loop that keeps one object in every namespace when somebody else has made the
// object, or the namespace is going or gone.
func Settled(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Gone returns nil for the error of a write to what is no longer there: the next look sees that, if it matters.
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

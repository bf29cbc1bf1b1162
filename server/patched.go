package server

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

// keepAddressed checks an object that webhooks or policies have changed: it is still the one that the request is about, and what only the
// server decides about it is as the server has decided.
func keepAddressed(r *Request, obj, old kind.Object, made metav1.ObjectMeta) error {
	if r.Sub != nil && r.Sub.Body != nil {
		return nil // the body of an action, or of a projection, which decides nothing about the object
	}
	if err := matchNamespace(r, obj); err != nil {
		return err
	}
	if name := obj.GetName(); r.Name != "" && name != r.Name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name)
	}
	if old != nil {
		keepIdentity(obj, old)
		return nil
	}
	obj.SetUID(made.UID)
	obj.SetCreationTimestamp(made.CreationTimestamp)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	return nil
}

package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// NamespaceLifecycle refuses writes into namespaces that do not exist or are being deleted, and the deletion of
// the three that a cluster cannot do without.
func NamespaceLifecycle() Plugin {
	return Plugin{Name: "NamespaceLifecycle", Admit: func(ctx context.Context, a *Admission) error {
		if a.Verb == "delete" && a.Def.Group == "" && a.Def.Kind == "Namespace" {
			switch a.Name {
			case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
				return apierrors.NewForbidden(a.Def.Resource(), a.Name, fmt.Errorf("this namespace may not be deleted"))
			}
		}
		if a.Def.Scope != kind.Namespaced || a.Verb != "create" || a.Namespace == "" {
			return nil
		}
		if a.Def.Group == "authorization.k8s.io" { // asking about a namespace does not need it
			return nil
		}
		o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
		if err != nil {
			return err
		}
		if o.GetDeletionTimestamp() == nil && o.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating {
			return nil
		}
		err = a.Forbid(fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
		st := err.(*apierrors.StatusError) //nolint:errorlint // made in the line above
		st.ErrStatus.Details.Causes = append(st.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace",
		})
		return err
	}}
}

// Package coreadmission holds the admission plugins that guard the server itself: the life of namespaces, and rights
// that users would give away without having them.
package coreadmission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
)

// RoleGuard returns the plugin that refuses roles and bindings which would give away rights that the writer does not
// have.
func RoleGuard(g *authz.Guard) kind.Plugin {
	return kind.Plugin{Name: "RBACEscalation", Admit: func(ctx context.Context, a *kind.Admission) error {
		if a.Def.Group != rbacv1.GroupName || a.Object == nil {
			return nil
		}
		grant := authz.Grant{User: a.User, Namespace: a.Namespace, Name: a.Name}
		switch o := a.Object.(type) {
		case *rbacv1.ClusterRole:
			old, _ := a.Old.(*rbacv1.ClusterRole)
			return g.ClusterRole(ctx, grant, o, old)
		case *rbacv1.Role:
			old, _ := a.Old.(*rbacv1.Role)
			return g.Role(ctx, grant, o, old)
		case *rbacv1.ClusterRoleBinding:
			old, _ := a.Old.(*rbacv1.ClusterRoleBinding)
			return g.ClusterRoleBinding(ctx, grant, o, old)
		case *rbacv1.RoleBinding:
			old, _ := a.Old.(*rbacv1.RoleBinding)
			return g.RoleBinding(ctx, grant, o, old)
		}
		return nil
	}}
}

// NamespaceLifecycle returns the plugin that refuses new objects in namespaces that do not exist or are being deleted,
// and the deletion of the three namespaces that a cluster cannot do without.
func NamespaceLifecycle() kind.Plugin {
	return kind.Plugin{Name: "NamespaceLifecycle", Admit: func(ctx context.Context, a *kind.Admission) error {
		if a.Verb == "delete" && a.Def.Group == "" && a.Def.Kind == "Namespace" {
			switch a.Name {
			case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
				return apierrors.NewForbidden(a.Def.Resource(), a.Name, fmt.Errorf("this namespace may not be deleted"))
			}
		}
		if a.Def.Scope != kind.Namespaced || a.Verb != "create" || a.Namespace == "" {
			return nil
		}
		if a.Def.Group == "authorization.k8s.io" { // reviews of access need no namespace that exists
			return nil
		}
		o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
		if err != nil {
			return err
		}
		if o.GetDeletionTimestamp() == nil && o.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating {
			return nil
		}
		err = a.Forbid(fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
		if st, ok := errors.AsType[*apierrors.StatusError](err); ok {
			st.ErrStatus.Details.Causes = append(st.ErrStatus.Details.Causes, metav1.StatusCause{
				Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
				Field: "metadata.namespace",
			})
		}
		return err
	}}
}

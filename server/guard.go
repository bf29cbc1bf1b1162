package server

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"proa.dev/server/authz"
)

// RoleGuard refuses writes of roles and bindings that would give away rights which the writer does not have.
func RoleGuard(g *authz.Guard) Plugin {
	return Plugin{Name: "RBACEscalation", Admit: func(ctx context.Context, a *Admission) error {
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

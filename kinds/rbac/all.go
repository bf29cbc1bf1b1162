// Package rbac holds the kinds of the rbac.authorization.k8s.io group.
package rbac

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		ClusterRoles(),
		ClusterRoleBindings(),
		Roles(),
		RoleBindings(),
	}
}

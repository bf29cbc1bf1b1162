package state

import (
	"context"
	"iter"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"proa.dev/watch"
)

// RBACView reads roles and bindings for the RBAC authorizer, from the caches.
type RBACView struct {
	state  *State
	caches func() [4]*watch.Cache
}

// NewRBACView returns a view of roles and bindings, whose caches start on first use.
func NewRBACView(s *State) *RBACView {
	return &RBACView{state: s, caches: sync.OnceValue(func() (out [4]*watch.Cache) {
		for i, name := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
			out[i] = s.Cache(s.Def(RBACResource(name)))
		}
		return out
	})}
}

// Wait waits for the newest state of roles and bindings.
func (v *RBACView) Wait(ctx context.Context) error {
	for _, c := range v.caches() {
		if err := c.WaitUntilFresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Generation returns a number that changes with every change of a role or a binding.
func (v *RBACView) Generation() int64 {
	var sum int64
	for _, c := range v.caches() {
		sum += c.Rev()
	}
	return sum
}

// ClusterRole finds a ClusterRole.
func (v *RBACView) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	o, found := v.state.peek(RBACResource("clusterroles"), "", name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.ClusterRole), true
}

// Role finds a Role.
func (v *RBACView) Role(namespace, name string) (*rbacv1.Role, bool) {
	o, found := v.state.peek(RBACResource("roles"), namespace, name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.Role), true
}

// ClusterRoleBindings yields all ClusterRoleBindings.
func (v *RBACView) ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding] {
	return Cached[*rbacv1.ClusterRoleBinding](v.state, RBACResource("clusterrolebindings"), "")
}

// ClusterRoles yields all ClusterRoles.
func (v *RBACView) ClusterRoles() iter.Seq[*rbacv1.ClusterRole] {
	return Cached[*rbacv1.ClusterRole](v.state, RBACResource("clusterroles"), "")
}

// RoleBindings yields the RoleBindings of a namespace.
func (v *RBACView) RoleBindings(namespace string) iter.Seq[*rbacv1.RoleBinding] {
	return Cached[*rbacv1.RoleBinding](v.state, RBACResource("rolebindings"), namespace)
}

// RoleBinding finds a RoleBinding.
func (v *RBACView) RoleBinding(namespace, name string) (*rbacv1.RoleBinding, bool) {
	o, found := v.state.peek(RBACResource("rolebindings"), namespace, name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.RoleBinding), true
}

// ClusterRoleBinding finds a ClusterRoleBinding.
func (v *RBACView) ClusterRoleBinding(name string) (*rbacv1.ClusterRoleBinding, bool) {
	o, found := v.state.peek(RBACResource("clusterrolebindings"), "", name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.ClusterRoleBinding), true
}

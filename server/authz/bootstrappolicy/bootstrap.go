// Package bootstrappolicy holds the roles and bindings that a cluster has from its first start, and computes the writes
// with which a running cluster gets them: it is the part of hop 3 of 12 that is data. It owns policy.txt, the format of
// that file, and the rules by which later versions of the policy are merged into objects that people may have changed.
// It writes nothing itself; Reconcile returns the steps.
package bootstrappolicy

import (
	_ "embed"

	rbacv1 "k8s.io/api/rbac/v1"
)

//go:embed policy.txt
var text string

// Policy is a set of RBAC objects, each list in the order in which it was written.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
	// Withdraw changes, by ClusterRole, the rules that the cluster has before missing ones are added: it takes away what
	// an earlier version granted and this one does not.
	Withdraw map[string]func([]rbacv1.PolicyRule) []rbacv1.PolicyRule
}

// Default returns a new copy of the policy of a new cluster, marked as bootstrapped and as to be kept up to date. An
// error means that this program was built from a broken file.
func Default() (*Policy, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, err
	}
	p.mark()
	return p, nil
}

// NodeRules returns the rules of the ClusterRole system:node, which the Node authorizer applies to all nodes.
func (p *Policy) NodeRules() []rbacv1.PolicyRule {
	for _, role := range p.ClusterRoles {
		if role.Name == "system:node" {
			return role.Rules
		}
	}
	return nil
}

// mark adds to all objects the label that says where they come from and the annotation that lets Reconcile add to them.
// People set the annotation to "false" to keep an object as it is.
func (p *Policy) mark() {
	for _, o := range p.ClusterRoles {
		o.Labels, o.Annotations = marked(o.Labels), autoUpdate()
	}
	for _, o := range p.ClusterRoleBindings {
		o.Labels, o.Annotations = marked(o.Labels), autoUpdate()
	}
	for _, o := range p.Roles {
		o.Labels, o.Annotations = marked(o.Labels), autoUpdate()
	}
	for _, o := range p.RoleBindings {
		o.Labels, o.Annotations = marked(o.Labels), autoUpdate()
	}
}

func marked(labels map[string]string) map[string]string {
	return merge(labels, map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"})
}

func autoUpdate() map[string]string {
	return map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}
}

package run

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

// roles are the roles of controllers, from what they declare. Controllers that share a name share a role.
func roles(controllers []control.Controller) (out []*rbacv1.ClusterRole) {
	byName := map[string]*rbacv1.ClusterRole{}
	for _, ctl := range controllers {
		r := byName[ctl.Name]
		if r == nil {
			r = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roleName(ctl.Name)}}
			byName[ctl.Name], out = r, append(out, r)
		}
		r.Rules = append(r.Rules, ctl.Role()...)
	}
	read := func(on ...schema.GroupResource) (rules []rbacv1.PolicyRule) {
		for _, r := range on {
			rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}})
		}
		return rules
	}
	return append(out, &rbacv1.ClusterRole{
		// What a node needs to make Services and policies work for its Pods.
		ObjectMeta: metav1.ObjectMeta{Name: networkRole},
		Rules:      read(gr.Services, gr.EndpointSlices, gr.Nodes, gr.Namespaces, gr.Pods, gr.NetworkPolicies),
	}, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: leaderRole},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"list", "watch", "create", "update"}, APIGroups: []string{gr.Leases.Group}, Resources: []string{gr.Leases.Resource}}},
	})
}

const (
	leaderRole  = "proa:leader"
	networkRole = "proa:node-network"
	// JoinGroup is the group of the tokens with which nodes join.
	JoinGroup = "system:bootstrappers:proa:nodes"
)

func roleName(controller string) string { return "proa:controller:" + controller }

// bindings give the roles to the controllers.
func bindings(controllers []control.Controller) (out []*rbacv1.ClusterRoleBinding) {
	give := func(name, role string, subjects ...rbacv1.Subject) {
		out = append(out, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
		})
	}
	bind := func(role string, subjects ...rbacv1.Subject) { give(role, role, subjects...) }
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	bind(networkRole, group(user.NodesGroup))
	give("proa:nodes-join", "system:node-bootstrapper", group(JoinGroup))
	give("proa:nodes-are-approved", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", group(JoinGroup))
	give("proa:nodes-renew", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", group(user.NodesGroup))
	done := map[string]bool{}
	for _, ctl := range controllers {
		if !done[ctl.Name] {
			bind(roleName(ctl.Name), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: ctl.Name})
		}
		done[ctl.Name] = true
	}
	bind(leaderRole, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-controller-manager"},
		rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"})
	return out
}

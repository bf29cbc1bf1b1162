// Package bootstraproles holds the roles that proa adds to those with which every Kubernetes cluster begins: of its
// controllers, of nodes, and of the accounts that serve Ingresses and Gateways.
package bootstraproles

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/control"
	"proa.dev/control/clustersettings"
	"proa.dev/kinds/lib/gr"
)

// ControllerRoles returns the roles of controllers, from the permissions that they declare, and those of nodes and
// leaders. Controllers that share a name share a role.
func ControllerRoles(controllers []control.Controller) (out []*rbacv1.ClusterRole) {
	byName := map[string]*rbacv1.ClusterRole{}
	for _, ctl := range controllers {
		r := byName[ctl.Name]
		if r == nil {
			r = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roleName(ctl.Name)}}
			byName[ctl.Name], out = r, append(out, r)
		}
		r.Rules = append(r.Rules, ctl.Role()...)
	}
	return append(out, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: networkRole},
		Rules:      nodeNetworkRules(),
	}, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: leaderRole},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch", "create", "update"}, APIGroups: []string{gr.Leases.Group},
			Resources: []string{gr.Leases.Resource}}},
	})
}

// nodeNetworkRules returns what a node needs to implement Services, DNS and network policies. Lists and watches of
// Pods, Nodes and namespaces show those of other nodes in the reduced form that the kind has for nodes, and single
// objects are read whole only where the Node authorizer allows it.
func nodeNetworkRules() (rules []rbacv1.PolicyRule) {
	for _, on := range []schema.GroupResource{gr.Services, gr.EndpointSlices, gr.Nodes, gr.Namespaces, gr.Pods, gr.NetworkPolicies} {
		rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{on.Group},
			Resources: []string{on.Resource}})
	}
	// The tunnels of a cluster are numbered by the UID of this namespace.
	return append(rules, rbacv1.PolicyRule{
		Verbs: []string{"get"}, APIGroups: []string{gr.Namespaces.Group}, Resources: []string{gr.Namespaces.Resource},
		ResourceNames: []string{metav1.NamespaceSystem},
	}, rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{gr.ConfigMaps.Group}, Resources: []string{gr.ConfigMaps.Resource},
		ResourceNames: []string{clustersettings.Name},
	})
}

// Withdrawn returns, by ClusterRole, what takes from the rules of an earlier version those that this one does not grant
// any more: nodes could read every Pod whole.
func Withdrawn() map[string]func([]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return map[string]func([]rbacv1.PolicyRule) []rbacv1.PolicyRule{networkRole: func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i := range rules {
			if r := &rules[i]; len(r.ResourceNames) == 0 {
				r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return verb == "get" })
			}
		}
		return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 })
	}}
}

const (
	leaderRole  = "proa:leader"
	networkRole = "proa:node-network"
	// JoinGroup is the group of the tokens with which nodes join.
	JoinGroup = "system:bootstrappers:proa:nodes"
)

func roleName(controller string) string { return "proa:controller:" + controller }

// ControllerBindings binds the roles of controllers, nodes and leaders to their subjects.
func ControllerBindings(controllers []control.Controller) (out []*rbacv1.ClusterRoleBinding) {
	give := func(name, role string, subjects ...rbacv1.Subject) {
		out = append(out, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: subjects,
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

package bootstraproles

import (
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/gr"
)

// IngressAccount is the service account that serves Ingresses. Nodes themselves must not read Secrets.
const IngressAccount = "proa-ingress"

// IngressRoles returns the role of the account that serves Ingresses.
func IngressRoles() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
	ingresses, classes := schema.GroupResource{Group: networkingv1.GroupName,
		Resource: "ingresses"}, schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
	may := func(verbs []string, on schema.GroupResource, sub string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{on.Group}, Resources: []string{on.Resource + sub}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "proa:ingress"}}
	for _, on := range []schema.GroupResource{ingresses, classes, gr.Services, gr.EndpointSlices, gr.Secrets, gr.Nodes} {
		role.Rules = append(role.Rules, may([]string{"get", "list", "watch"}, on, ""))
	}
	role.Rules = append(role.Rules, may([]string{"update"}, ingresses, "/status"),
		may([]string{"create", "update", "patch"}, gr.Events, ""))
	return []*rbacv1.ClusterRole{role}, []*rbacv1.ClusterRoleBinding{bindToAccount(role.Name, IngressAccount)}
}

// GatewayAccount is the service account that serves Gateways. Nodes themselves must not read Secrets.
const GatewayAccount = "proa-gateway"

// GatewayRoles returns the role of the account that serves Gateways.
func GatewayRoles() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
	standard := func(names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: names}
	}
	may := func(rule rbacv1.PolicyRule, verbs ...string) rbacv1.PolicyRule {
		rule.Verbs = verbs
		return rule
	}
	on := func(on schema.GroupResource) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{on.Group}, Resources: []string{on.Resource}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "proa:gateway"}}
	role.Rules = []rbacv1.PolicyRule{
		may(standard("gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "referencegrants",
			"backendtlspolicies"), "get", "list", "watch"),
		may(standard("gatewayclasses/status", "gateways/status", "listenersets/status", "httproutes/status", "grpcroutes/status",
			"tlsroutes/status", "backendtlspolicies/status"), "update"),
		may(standard("gatewayclasses"), "create"),
		// Setting blockOwnerDeletion in an owner reference needs the permission to update the finalizers of the owner.
		may(standard("gateways/finalizers"), "update"),
		may(on(gr.Services), "get", "list", "watch", "create", "update", "delete"),
		may(on(gr.EndpointSlices), "get", "list", "watch", "create", "update", "delete"),
	}
	for _, r := range []schema.GroupResource{gr.Secrets, gr.ConfigMaps, gr.Namespaces, gr.Nodes, gr.CustomResourceDefinitions} {
		role.Rules = append(role.Rules, may(on(r), "get", "list", "watch"))
	}
	return []*rbacv1.ClusterRole{role}, []*rbacv1.ClusterRoleBinding{bindToAccount(role.Name, GatewayAccount)}
}

// GangRoles returns the roles for gang scheduling: the scheduler may read groups of Pods, and users who may create or
// read Pods may do the same with groups.
func GangRoles() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
	role := func(name, label string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		if label != "" {
			r.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + label: "true"}
		}
		return r
	}
	rule := func(resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{gr.PriorityClasses.Group}, Resources: resources}
	}
	return []*rbacv1.ClusterRole{
			role("proa:gangs", "", rule([]string{"podgroups"}, "get", "list", "watch"),
				rule([]string{"podgroups/status"}, "patch", "update")),
			role("proa:gangs-view", "view", rule([]string{"workloads", "podgroups", "podgroups/status"}, "get", "list", "watch")),
			role("proa:gangs-edit", "edit",
				rule([]string{"workloads", "podgroups"}, "create", "delete", "deletecollection", "patch", "update")),
		}, []*rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "proa:gangs"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "proa:gangs"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user.KubeScheduler}},
		}}
}

// bindToAccount binds a role to a service account of kube-system, under the name of the role.
func bindToAccount(role, account string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: account}},
	}
}

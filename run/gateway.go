package run

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
)

// gatewaySettings are those about the Gateway API.
func gatewaySettings() []Setting {
	return []Setting{
		{Name: "gateway-class", Help: "serve Gateways of the class `NAME` (proa), which is made when the definitions of the Gateway API are installed; off serves none",
			Set: one(func(c *Config, v string) error {
				if c.Ingress.GatewayClass = v; v == "off" {
					c.Ingress.GatewayClass = ""
					return nil
				}
				return checkName(v)
			})},
	}
}

// GatewayAccount is the service account that serves Gateways. Nodes themselves must not read Secrets.
const GatewayAccount = "proa-gateway"

// ServesGateways tells whether Gateways are served once their definitions are installed.
func (c *Config) ServesGateways() bool { return c.Node.Name != "" && c.Ingress.GatewayClass != "" }

// openGateway makes the role of what serves Gateways.
func (s *Server) openGateway() {
	if !s.ServesGateways() {
		return
	}
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
		may(standard("gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "referencegrants", "backendtlspolicies"), "get", "list", "watch"),
		may(standard("gatewayclasses/status", "gateways/status", "listenersets/status", "httproutes/status", "grpcroutes/status", "tlsroutes/status", "backendtlspolicies/status"), "update"),
		may(standard("gatewayclasses"), "create"),
		// The owner of a Service may be one whose deletion waits for it only if its finalizers may be written.
		may(standard("gateways/finalizers"), "update"),
		may(on(gr.Services), "get", "list", "watch", "create", "update", "delete"), may(on(gr.EndpointSlices), "get", "list", "watch", "create", "update", "delete"),
	}
	for _, r := range []schema.GroupResource{gr.Secrets, gr.ConfigMaps, gr.Namespaces, gr.Nodes, gr.CustomResourceDefinitions} {
		role.Rules = append(role.Rules, may(on(r), "get", "list", "watch"))
	}
	s.policy.ClusterRoles = append(s.policy.ClusterRoles, role)
	s.policy.ClusterRoleBindings = append(s.policy.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: GatewayAccount}},
	})
}

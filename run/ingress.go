package run

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
)

// IngressConfig is what can be said about Ingresses. Servers that have a node serve them.
type IngressConfig struct {
	// Class is the name of the IngressClass; empty serves none.
	Class string
	// HTTPPort and HTTPSPort are open while an Ingress needs them; 0 for never.
	HTTPPort, HTTPSPort int
	// GatewayClass is the name of the GatewayClass that is made when the definitions of the Gateway API come; empty serves no Gateways.
	GatewayClass string
}

func defaultIngress() IngressConfig {
	return IngressConfig{Class: "proa", HTTPPort: 80, HTTPSPort: 443, GatewayClass: "proa"}
}

// ingressSettings are those about Ingresses.
func ingressSettings() []Setting {
	return append([]Setting{
		{Name: "ingress-class", Help: "serve Ingresses of the class `NAME` (proa), which is made and is the default if there is no other; off serves none",
			Set: one(func(c *Config, v string) error {
				if c.Ingress.Class = v; v == "off" {
					c.Ingress.Class = ""
					return nil
				}
				return checkName(v)
			})},
		{Name: "ingress-http-port", Help: "serve them at port `N` (80); 0 for not",
			Set: one(func(c *Config, v string) (err error) { c.Ingress.HTTPPort, err = parsePort(v); return err })},
		{Name: "ingress-https-port", Help: "serve them with TLS at port `N` (443); 0 for not",
			Set: one(func(c *Config, v string) (err error) { c.Ingress.HTTPSPort, err = parsePort(v); return err })},
	}, gatewaySettings()...)
}

func (c *Config) checkIngress() error {
	if i := c.Ingress; i.Class != "" && i.HTTPPort != 0 && i.HTTPPort == i.HTTPSPort {
		return fmt.Errorf("ingress-http-port and ingress-https-port are both %d; one port is for one of them", i.HTTPPort)
	}
	return nil
}

// IngressAccount is the service account that serves Ingresses. Nodes themselves must not read Secrets.
const IngressAccount = "proa-ingress"

// ServesIngresses tells whether Ingresses are served.
func (c *Config) ServesIngresses() bool { return c.Node.Name != "" && c.Ingress.Class != "" }

// openIngress makes the role of what serves Ingresses.
func (s *Server) openIngress() {
	if !s.ServesIngresses() {
		return
	}
	ingresses, classes := schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}, schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
	may := func(verbs []string, on schema.GroupResource, sub string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{on.Group}, Resources: []string{on.Resource + sub}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "proa:ingress"}}
	for _, on := range []schema.GroupResource{ingresses, classes, gr.Services, gr.EndpointSlices, gr.Secrets, gr.Nodes} {
		role.Rules = append(role.Rules, may([]string{"get", "list", "watch"}, on, ""))
	}
	role.Rules = append(role.Rules, may([]string{"update"}, ingresses, "/status"), may([]string{"create", "update", "patch"}, gr.Events, ""))
	s.policy.ClusterRoles = append(s.policy.ClusterRoles, role)
	s.policy.ClusterRoleBindings = append(s.policy.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: IngressAccount}},
	})
}

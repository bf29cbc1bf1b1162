package bootstraproles

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/trace"
)

// TraceRoles returns the roles that let whoever has the roles view, edit or admin read traces and explanations, and administrators the
// bodies of requests. Each of them shows only what its reader may get himself. They are roles of proa's own, so that those of
// Kubernetes stay as they are: the controller that fills view and admin finds them by their labels, and puts them behind those of
// Kubernetes, in the order of their names.
func TraceRoles() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
	role := func(name, into string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + into: "true"}},
			Rules:      rules,
		}
	}
	rule := func(verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{trace.Group}, Resources: resources}
	}
	return []*rbacv1.ClusterRole{
		role("trace.proa.dev:view", "view", rule([]string{"get", "list", "watch"}, "traces"),
			rule([]string{"get", "list"}, "explanations", "schedulingattempts")),
		role("trace.proa.dev:admin", "admin", rule([]string{"get"}, "wiretraces")),
	}, nil
}

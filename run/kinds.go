package run

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds"
	"proa.dev/kinds/admissionregistration"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/core"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/resource"
	"proa.dev/server/definitions"
	"proa.dev/server/devices"
	"proa.dev/server/policies"
)

// kinds are the resources that are served: the built-in ones, with those of gang scheduling if somebody wants them.
func (c *Config) kinds() []*kind.Def {
	var all []*kind.Def
	all = kinds.AllWith(kinds.Hooks{
		Admission: admissionregistration.Hooks{Compile: policies.Compiler(), Resource: func(k schema.GroupVersionKind) (string, bool) { return resourceOf(all, k) }},
		Core:      core.Hooks{PodRanges: c.allocated()},
		Resource:  resource.Hooks{Selector: devices.Check},
		Definition: apiextensions.Hooks{
			Validate: func(c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
				return definitions.Validate(context.Background(), c, old) // the library wants a context, and nothing in it
			},
			Warn: definitions.Warn,
		},
	})
	if c.feature(gangs) {
		return kinds.WithGangs(all)
	}
	return all
}

// resourceOf names the resource of a kind.
func resourceOf(all []*kind.Def, k schema.GroupVersionKind) (string, bool) {
	for _, d := range all {
		if d.GroupVersionKind == k {
			return d.Resource().Resource, true
		}
	}
	return "", false
}

// gangRoles let the scheduler see groups of Pods, and those make and see them who may do so with Pods.
func gangRoles() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
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
			role("proa:gangs", "", rule([]string{"podgroups"}, "get", "list", "watch"), rule([]string{"podgroups/status"}, "patch", "update")),
			role("proa:gangs-view", "view", rule([]string{"workloads", "podgroups", "podgroups/status"}, "get", "list", "watch")),
			role("proa:gangs-edit", "edit", rule([]string{"workloads", "podgroups"}, "create", "delete", "deletecollection", "patch", "update")),
		}, []*rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "proa:gangs"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "proa:gangs"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user.KubeScheduler}},
		}}
}

package authz_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"proa.dev/server/authz"
)

// FuzzRuleAllows checks what must hold for every rule and every request: widening a rule to "*" never removes a
// permission, a rule without verbs grants nothing, and a rule that covers the request as a rule of its own (which is
// what the escalation check assumes) allows the request.
func FuzzRuleAllows(f *testing.F) {
	f.Add("get,list", "core,apps", "pods,pods/log,*/scale", "", "", "get", "apps", "deployments", "scale", "x", "", true)
	f.Add("*", "*", "*", "", "*", "delete", "", "nodes", "", "n", "", true)
	f.Add("get", "", "", "", "/healthz,/api/*,/**", "get", "", "", "", "", "/api/v1", false)
	f.Add("update", "", "configmaps", "a,b", "", "update", "", "configmaps", "", "b", "", true)
	f.Add("create", "", "*/", "", "", "create", "", "pods", "", "", "", true)
	f.Fuzz(func(t *testing.T, verbs, groups, resources, names, urls, verb, group, resource, sub, name, path string, isResource bool) {
		rule := rbacv1.PolicyRule{Verbs: split(verbs), APIGroups: split(groups), Resources: split(resources), ResourceNames: split(names),
			NonResourceURLs: split(urls)}
		a := &authz.Attributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name, Path: path,
			IsResource: isResource}
		allowed := authz.RuleAllows(a, &rule)

		for what, widen := range map[string]func(*rbacv1.PolicyRule){
			"verbs":     func(r *rbacv1.PolicyRule) { r.Verbs = append([]string{"*"}, r.Verbs...) },
			"groups":    func(r *rbacv1.PolicyRule) { r.APIGroups = append([]string{"*"}, r.APIGroups...) },
			"resources": func(r *rbacv1.PolicyRule) { r.Resources = append([]string{"*"}, r.Resources...) },
			"names":     func(r *rbacv1.PolicyRule) { r.ResourceNames = nil },
			"urls":      func(r *rbacv1.PolicyRule) { r.NonResourceURLs = append([]string{"*"}, r.NonResourceURLs...) },
		} {
			wide := rule
			widen(&wide)
			if allowed && !authz.RuleAllows(a, &wide) {
				t.Errorf("wider %s: %+v allows, %+v does not", what, rule, wide)
			}
		}
		everything := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"},
			NonResourceURLs: []string{"*"}}
		if !authz.RuleAllows(a, &everything) {
			t.Error("the rule for everything does not allow this")
		}
		if none := (rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources,
			NonResourceURLs: rule.NonResourceURLs}); authz.RuleAllows(a, &none) {
			t.Error("a rule without verbs allows this")
		}
		if strings.Contains(resource, "/") {
			return // a request cannot have such a resource, and in a rule it would have another meaning
		}
		if covers, _ := validation.Covers([]rbacv1.PolicyRule{rule}, []rbacv1.PolicyRule{asRule(a)}); covers && !allowed {
			t.Errorf("%+v covers %+v but does not allow it", rule, asRule(a))
		}
	})
}

// asRule returns the smallest rule that would allow the request.
func asRule(a *authz.Attributes) rbacv1.PolicyRule {
	if !a.IsResource {
		return rbacv1.PolicyRule{Verbs: []string{a.Verb}, NonResourceURLs: []string{a.Path}}
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	rule := rbacv1.PolicyRule{Verbs: []string{a.Verb}, APIGroups: []string{a.Group}, Resources: []string{resource}}
	if a.Name != "" {
		rule.ResourceNames = []string{a.Name}
	}
	return rule
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

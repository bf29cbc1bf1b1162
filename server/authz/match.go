package authz

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// RulesAllow reports whether any of the rules allows the request.
func RulesAllow(a *Attributes, rules []rbacv1.PolicyRule) bool {
	for i := range rules {
		if RuleAllows(a, &rules[i]) {
			return true
		}
	}
	return false
}

// RuleAllows reports whether one rule allows the request. It allocates nothing.
func RuleAllows(a *Attributes, rule *rbacv1.PolicyRule) bool {
	if !hasOrAll(rule.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return coversPath(rule.NonResourceURLs, a.Path)
	}
	return hasOrAll(rule.APIGroups, a.Group) &&
		coversResource(rule.Resources, a.Resource, a.Subresource) &&
		// A rule that lists names grants nothing to a request that names no object, such as a create.
		(len(rule.ResourceNames) == 0 || contains(rule.ResourceNames, a.Name))
}

// hasOrAll finds an item or the wildcard "*", which stands for all verbs and all groups.
func hasOrAll(list []string, item string) bool {
	for _, s := range list {
		if s == "*" || s == item {
			return true
		}
	}
	return false
}

// coversResource understands the four forms in a rule: "*", "pods", "pods/log" and "*/scale".
func coversResource(list []string, resource, subresource string) bool {
	for _, s := range list {
		if s == rbacv1.ResourceAll || isResource(s, resource, subresource) {
			return true
		}
		if subresource != "" && isResource(s, "*", subresource) {
			return true
		}
	}
	return false
}

// isResource compares s with "resource" or "resource/subresource" without building the latter.
func isResource(s, resource, subresource string) bool {
	if subresource == "" {
		return s == resource
	}
	n := len(resource)
	return len(s) == n+1+len(subresource) && s[n] == '/' && s[:n] == resource && s[n+1:] == subresource
}

// coversPath matches URL paths; stars at the end of a rule's path match any rest.
func coversPath(list []string, path string) bool {
	for _, s := range list {
		if s == path {
			return true
		}
		if strings.HasSuffix(s, "*") && strings.HasPrefix(path, strings.TrimRight(s, "*")) {
			return true
		}
	}
	return false
}

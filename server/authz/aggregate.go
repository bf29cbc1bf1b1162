package authz

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules that a ClusterRole with an aggregationRule must have: for each selector in turn the rules
// of the selected roles in the order of their names, each rule once, without the role itself. changed reports whether
// they differ from the rules that role has now. A role without aggregationRule keeps its own rules. The returned rules
// share memory with the roles that they come from.
func Aggregate(role *rbacv1.ClusterRole, all iter.Seq[*rbacv1.ClusterRole]) (rules []rbacv1.PolicyRule, changed bool, err error) {
	if role.AggregationRule == nil {
		return role.Rules, false, nil
	}
	rules = []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, false, fmt.Errorf("aggregate clusterrole %q: %w", role.Name, err)
		}
		for _, source := range selected(all, selector, role.Name) {
			for j := range source.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return sameRule(&r, &source.Rules[j]) }) {
					rules = append(rules, source.Rules[j])
				}
			}
		}
	}
	return rules, !equality.Semantic.DeepEqual(rules, role.Rules), nil
}

func selected(all iter.Seq[*rbacv1.ClusterRole], selector labels.Selector, except string) []*rbacv1.ClusterRole {
	return slices.SortedFunc(func(yield func(*rbacv1.ClusterRole) bool) {
		for role := range all {
			if role.Name != except && selector.Matches(labels.Set(role.Labels)) && !yield(role) {
				return
			}
		}
	}, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
}

// sameRule compares two rules. An absent list equals an empty one; order counts.
func sameRule(a, b *rbacv1.PolicyRule) bool {
	return slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.APIGroups, b.APIGroups) &&
		slices.Equal(a.Resources, b.Resources) && slices.Equal(a.ResourceNames, b.ResourceNames) &&
		slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// ClusterRoles grant verbs on resources of every namespace and on resources and paths outside of namespaces.
func ClusterRoles() *kind.Def {
	return kind.Define(kind.Resource[rbacv1.ClusterRole]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRole"}, Plural: "clusterroles",
			Scope:          kind.Cluster,
			CreateOnUpdate: true,
		},
		Name:     segmentName,
		Validate: validateClusterRole,
	})
}

func validateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule != nil {
		errs = append(errs, validateAggregation(r.AggregationRule, old != nil && hasInvalidSelector(old))...)
	}
	return append(errs, requireVerbs(r.Rules)...)
}

// validateAggregation checks label selectors. lenient allows invalid label values, which the stored role has already.
func validateAggregation(rule *rbacv1.AggregationRule, lenient bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(rule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lenient}
	for i, s := range rule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&s, opts, path.Index(i))...)
		if _, err := metav1.LabelSelectorAsSelector(&s); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), labels.Selector(nil), "invalid label selector."))
		}
	}
	return errs
}

func hasInvalidSelector(r *rbacv1.ClusterRole) bool {
	if r.AggregationRule == nil {
		return false
	}
	for _, s := range r.AggregationRule.ClusterRoleSelectors {
		if len(metav1validation.ValidateLabelSelector(&s, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0 {
			return true
		}
	}
	return false
}

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// ClusterRoles grant verbs on resources of every namespace and on resources and paths outside of namespaces.
func ClusterRoles() *kind.Def {
	return kind.Define(kind.Resource[rbacv1.ClusterRole]{
		Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRole", Plural: "clusterroles", Scope: kind.Cluster,
		Name:           segmentName,
		CreateOnUpdate: true,
		Validate:       validateClusterRole,
	})
}

func validateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	// A bad value that is stored already may stay.
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && badSelector(old)}
	for i, s := range r.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&s, opts, path.Index(i))...)
	}
	return errs
}

func badSelector(r *rbacv1.ClusterRole) bool {
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

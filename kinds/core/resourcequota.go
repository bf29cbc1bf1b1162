package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
	"proa.dev/kinds/lib/resourcename"
)

// ResourceQuotas bound what all objects of a namespace may use together.
func ResourceQuotas() *kind.Def {
	return kind.Define(kind.Resource[corev1.ResourceQuota]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}, Plural: "resourcequotas",
			Short: []string{"quota"},
		},
		Spec:   func(q *corev1.ResourceQuota) any { return &q.Spec },
		Status: func(q *corev1.ResourceQuota) any { return &q.Status },
		Default: func(q *corev1.ResourceQuota) {
			defaulting.RoundUp(q.Spec.Hard)
			defaulting.RoundUp(q.Status.Hard)
			defaulting.RoundUp(q.Status.Used)
		},
		Validate: validateQuota,
		Delete:   kind.Deletion[corev1.ResourceQuota]{ReturnsObject: true},
		Warn: func(q, old *corev1.ResourceQuota) []string {
			if old != nil {
				return nil
			}
			return quotaWarnings(q.Spec.Hard)
		},
		Columns: []kind.Column[corev1.ResourceQuota]{
			kind.NameColumn[corev1.ResourceQuota](),
			{Name: "Request", Description: "Request represents a minimum amount of cpu/memory that a container may consume.",
				Value: func(q *corev1.ResourceQuota) any { return usageText(q, false) }},
			{Name: "Limit", Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
				Value: func(q *corev1.ResourceQuota) any { return usageText(q, true) }},
			kind.AgeColumn[corev1.ResourceQuota](),
		},
		Subs: []kind.Sub[corev1.ResourceQuota]{{Name: "status", Validate: func(q, _ *corev1.ResourceQuota) field.ErrorList {
			var errs field.ErrorList
			if q.ResourceVersion == "" {
				errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
			}
			errs = append(errs, validateQuotaQuantities(q.Status.Hard, field.NewPath("status", "hard"))...)
			return append(errs, validateQuotaQuantities(q.Status.Used, field.NewPath("status", "used"))...)
		}}},
	})
}

// usageText lists "name: used/hard" of the limits, or of all other resources.
func usageText(q *corev1.ResourceQuota, limits bool) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		parts = append(parts, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(parts, ", ")
}

// quotaWarnings warns about requests that are greater than their limits.
func quotaWarnings(hard corev1.ResourceList) []string {
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage,
		corev1.ResourceEphemeralStorage} {
		requestName, limitName := "requests."+name, "limits."+name
		request, ok := hard[requestName]
		if !ok && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			if request, ok = hard[name]; ok {
				requestName = name
			}
		}
		limit, limited := hard[limitName]
		if ok && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requestName, request.String(),
				limitName, limit.String()))
		}
	}
	return warnings
}

func validateQuota(q, old *corev1.ResourceQuota) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateQuotaQuantities(q.Spec.Hard, spec.Child("hard"))
	errs = append(errs, validateScopes(&q.Spec, spec.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(&q.Spec, spec.Child("scopeSelector", "matchExpressions"))...)
	}
	if old != nil && !sameScopes(q.Spec.Scopes, old.Spec.Scopes) {
		errs = append(errs, field.Invalid(spec.Child("scopes"), q.Spec.Scopes, "field is immutable"))
	}
	return errs
}

func sameScopes(a, b []corev1.ResourceQuotaScope) bool {
	within := func(a, b []corev1.ResourceQuotaScope) bool {
		return !slices.ContainsFunc(a, func(s corev1.ResourceQuotaScope) bool { return !slices.Contains(b, s) })
	}
	return within(a, b) && within(b, a)
}

func validateQuotaQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(string(name))
		errs = append(errs, resourcename.ValidateQuota(name, at)...)
		errs = append(errs, resourcename.ValidateQuantity(name, list[name], at)...)
	}
	return errs
}

func validateScopes(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range s.Scopes {
		if !isQuotaScope(scope) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope"))
		}
		for range unsupportedResources(scope, s.Hard) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, validateScopeConflicts(s.Scopes, s, path)...)
}

func validateScopeSelector(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	for _, req := range s.ScopeSelector.MatchExpressions {
		scopes = append(scopes, req.ScopeName)
		if !isQuotaScope(req.ScopeName) {
			errs = append(errs, field.Invalid(path.Child("scopeName"), req.ScopeName, "unsupported scope"))
		}
		for range unsupportedResources(req.ScopeName, s.Hard) {
			errs = append(errs, field.Invalid(path, check.GoFields(s.ScopeSelector), "unsupported scope applied to resource"))
		}
		switch req.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
			corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
			if req.Operator != corev1.ScopeSelectorOpExists {
				errs = append(errs, field.Invalid(path.Child("operator"), req.Operator,
					"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
			}
		}
		errs = append(errs, validateScopeOperator(req, path)...)
	}
	return append(errs, validateScopeConflicts(scopes, s, path)...)
}

func validateScopeOperator(req corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	switch req.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(req.Values) == 0 {
			return field.ErrorList{field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")}
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(req.Values) != 0 {
			return field.ErrorList{field.Invalid(path.Child("values"), req.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")}
		}
	default:
		return field.ErrorList{field.Invalid(path.Child("operator"), req.Operator, "not a valid selector operator")}
	}
	return nil
}

func isQuotaScope(s corev1.ResourceQuotaScope) bool {
	switch s {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return true
	}
	return false
}

// unsupportedResources returns the standard resources that cannot be combined with a scope.
func unsupportedResources(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) []corev1.ResourceName {
	allowed := []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		allowed = allowed[:1]
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		allowed = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	default:
		if !isQuotaScope(scope) {
			return nil
		}
	}
	var bad []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		if resourcename.IsQuota(name) && !slices.Contains(allowed, name) {
			bad = append(bad, name)
		}
	}
	return bad
}

func validateScopeConflicts(scopes []corev1.ResourceQuotaScope, s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(path, s.Scopes, "conflicting scopes"))
		}
	}
	return errs
}

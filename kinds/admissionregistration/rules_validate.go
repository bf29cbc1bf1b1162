package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// staticSuffix ends the names that are reserved for configurations from files of the server.
const staticSuffix = ".static.k8s.io"

const staticText = "names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API"

// validateStatic refuses a new object whose name is reserved for configurations from files. An existing one gets a warning only.
func validateStatic(name string, created bool) field.ErrorList {
	if !created || !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, fmt.Sprintf(staticText, staticSuffix))}
}

func staticWarning(name string, update bool) []string {
	if !update || !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return []string{"metadata.name: " + fmt.Sprintf(staticText, staticSuffix)}
}

// requiredOneOf is check.OneOf for a value that must not be absent.
func requiredOneOf[S ~string](value *S, path *field.Path, known ...S) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return check.OneOf(*value, path, known...)
}

func validateRule(r *admissionv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operations := path.Child("operations")
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(operations, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(operations, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, o := range r.Operations {
		errs = append(errs, check.OneOf(o, operations.Index(i), admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create,
			admissionv1.Delete, admissionv1.Update)...)
	}
	errs = append(errs, validateList(r.APIGroups, path.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateList(r.APIVersions, path.Child("apiVersions"), "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	return append(errs, check.OneOfIfSet(r.Scope, path.Child("scope"), admissionv1.AllScopes, admissionv1.ClusterScope,
		admissionv1.NamespacedScope)...)
}

func validateList(list []string, path *field.Path, what string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateResources refuses resources that another entry of the list covers already.
func validateResources(resources []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(resources) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	allOf, anyWith := map[string]bool{}, map[string]bool{} // x/* and */x
	plain := false
	for i, r := range resources {
		if r == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		resource, sub, divided := strings.Cut(r, "/")
		if !divided {
			plain = r != "*"
			continue
		}
		if allOf[resource] {
			errs = append(errs, field.Invalid(path.Index(i), r, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, r)))
		}
		if anyWith[sub] {
			errs = append(errs, field.Invalid(path.Index(i), r, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, r)))
		}
		allOf[resource] = allOf[resource] || sub == "*"
		anyWith[sub] = anyWith[sub] || resource == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && plain {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

func validateNamedRules(rules []admissionv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		names := rules[i].ResourceNames
		for j, name := range names {
			at := path.Index(i).Child("resourceNames").Index(j)
			errs = append(errs, check.Messages(name, at, content.IsPathSegmentName(name))...)
			if slices.Contains(names[:j], name) {
				errs = append(errs, field.Duplicate(at, name))
			}
		}
		errs = append(errs, validateRule(&rules[i].RuleWithOperations, path.Index(i))...)
	}
	return errs
}

func validateMatch(m *admissionv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := requiredOneOf(m.MatchPolicy, path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)
	var opts metav1validation.LabelSelectorValidationOptions
	if m.NamespaceSelector == nil {
		errs = append(errs, field.Required(path.Child("namespaceSelector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector, opts, path.Child("namespaceSelector"))...)
	}
	if m.ObjectSelector == nil {
		errs = append(errs, field.Required(path.Child("objectSelector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector, opts, path.Child("objectSelector"))...)
	}
	errs = append(errs, validateNamedRules(m.ResourceRules, path.Child("resourceRules"))...)
	return append(errs, validateNamedRules(m.ExcludeResourceRules, path.Child("excludeResourceRules"))...)
}

// validateMutable refuses the operation DELETE, which has no object to change.
func validateMutable(m *admissionv1.MatchResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, r := range m.ResourceRules {
		for _, o := range r.Operations {
			errs = append(errs, check.OneOf(o, path.Child("resourceRules", "operations"), admissionv1.OperationAll, admissionv1.Connect,
				admissionv1.Create, admissionv1.Update)...)
		}
	}
	return errs
}

func validateConditions(c *compiler, conditions []admissionv1.MatchCondition, params bool, path *field.Path) field.ErrorList {
	const most = 64
	var errs field.ErrorList
	if len(conditions) > most {
		errs = append(errs, field.TooMany(path, len(conditions), most))
	}
	seen := map[string]bool{}
	for i, m := range conditions {
		at := path.Index(i)
		if text := strings.TrimSpace(m.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, c.check(at.Child("expression"), Expression{Use: Match, Text: text, Params: params, Authorizer: true})...)
		}
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, check.QualifiedName(m.Name, at.Child("name"))...)
		if seen[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		seen[m.Name] = true
	}
	return errs
}

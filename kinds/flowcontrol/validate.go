package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

const maxPrecedence = 10000

func validateFlowSchema(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	precedence := path.Child("matchingPrecedence")
	if spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "must be a positive value"))
	}
	if spec.MatchingPrecedence > maxPrecedence {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", maxPrecedence)))
	}
	if spec.MatchingPrecedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence,
			"only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	methods := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
		flowcontrolv1.FlowDistinguisherMethodByUserType}
	if m := spec.DistinguisherMethod; m != nil && !slices.Contains(methods, m.Type) {
		errs = append(errs, field.NotSupported(path.Child("distinguisherMethod", "type"), check.GoFields(m), methods))
	}
	if level := spec.PriorityLevelConfiguration.Name; level != "" {
		errs = append(errs, check.DNSSubdomain(level, path.Child("priorityLevelConfiguration", "name"))...)
	} else {
		errs = append(errs, field.Required(path.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	}
	for i := range spec.Rules {
		errs = append(errs, validateRules(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	for _, fixed := range MandatorySchemas() {
		if fixed.Name == s.Name && !equality.Semantic.DeepEqual(*spec, fixed.Spec) {
			errs = append(errs, field.Invalid(path, check.GoFields(*spec), fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name)))
		}
	}
	return append(errs, validateFlowSchemaStatus(s, nil)...)
}

func validateFlowSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	types := make([]string, len(s.Status.Conditions))
	for i, c := range s.Status.Conditions {
		types[i] = string(c.Type)
	}
	return validateTypes(types)
}

// validateTypes refuses duplicate types of conditions.
func validateTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	for i, t := range types {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if slices.Contains(types[:i], t) {
			errs = append(errs, field.Duplicate(at, t))
		}
		if t == "" {
			errs = append(errs, field.Required(at, ""))
		}
	}
	return errs
}

func validateRules(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validatePathRule(&r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// validateSubject requires the member that the kind of subject names, and no other.
func validateSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	kinds := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount,
		flowcontrolv1.SubjectKindUser}
	if !slices.Contains(kinds, s.Kind) {
		return field.ErrorList{field.NotSupported(path.Child("kind"), s.Kind, kinds)}
	}
	var errs, others field.ErrorList
	for _, m := range []struct {
		kind  flowcontrolv1.SubjectKind
		field string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil,
			func(at *field.Path) field.ErrorList { return validateAccount(s.ServiceAccount, at) }},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil,
			func(at *field.Path) field.ErrorList { return validateName(s.User.Name, at) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil,
			func(at *field.Path) field.ErrorList { return validateName(s.Group.Name, at) }},
	} {
		at := path.Child(m.field)
		switch {
		case m.kind == s.Kind && !m.set:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", m.field, m.kind)))
		case m.kind == s.Kind:
			errs = append(errs, m.check(at)...)
		case m.set:
			others = append(others, field.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", m.field, m.kind)))
		}
	}
	return append(errs, others...)
}

func validateName(name string, path *field.Path) field.ErrorList {
	if name != "" {
		return nil
	}
	return field.ErrorList{field.Required(path.Child("name"), "")}
}

func validateAccount(a *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	errs := validateName(a.Name, path)
	if a.Name != "" && a.Name != flowcontrolv1.NameAll {
		errs = append(errs, check.Messages(a.Name, path.Child("name"), validation.ValidateServiceAccountName(a.Name, false))...)
	}
	if a.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, check.Messages(a.Namespace, path.Child("namespace"), validation.ValidateNamespaceName(a.Namespace, false))...)
}

// validateList refuses an empty list, and a star beside other items. rest checks lists without a star.
func validateList(list []string, path *field.Path, required, others string, rest func() field.ErrorList) field.ErrorList {
	switch star := slices.Contains(list, "*"); {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, required)}
	case star && len(list) > 1:
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+others)}
	case !star && rest != nil:
		return rest()
	}
	return nil
}

func validateVerbs(verbs []string, path *field.Path) field.ErrorList {
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	return validateList(verbs, path, "verbs must contain at least one value", "verbs", func() field.ErrorList {
		if slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(known, v) }) {
			return field.ErrorList{field.NotSupported(path, verbs, known)}
		}
		return nil
	})
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	errs = append(errs, validateList(r.APIGroups, path.Child("apiGroups"), "resource rules must supply at least one api group",
		"api groups", nil)...)
	errs = append(errs, validateList(r.Resources, path.Child("resources"), "resource rules must supply at least one resource", "resources",
		nil)...)
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return errs
	}
	at := path.Child("namespaces")
	return append(errs, validateList(r.Namespaces, at, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces", func() field.ErrorList {
		var errs field.ErrorList
		for i, ns := range r.Namespaces {
			for _, message := range validation.ValidateNamespaceName(ns, false) {
				errs = append(errs, field.Invalid(at.Index(i), ns, "each member of this list must be '*' or a DNS-1123 label; "+message))
			}
		}
		return errs
	})...)
}

func validatePathRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	at := path.Child("nonResourceURLs")
	return append(validateVerbs(r.Verbs, path.Child("verbs")),
		validateList(r.NonResourceURLs, at, "nonResourceURLs must contain at least one value", "non-resource URLs", func() field.ErrorList {
			var errs field.ErrorList
			for i, url := range r.NonResourceURLs {
				if flaw := pathError(url); flaw != "" {
					errs = append(errs, field.Invalid(at.Index(i), url, flaw))
				}
			}
			return errs
		})...)
}

func pathError(path string) string {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

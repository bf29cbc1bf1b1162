package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"proa.dev/kinds/lib/check"
)

const (
	maxAuditAnnotations = 20
	maxAuditExpression  = 5 << 10
	celIdentifier       = "^[_a-zA-Z][_a-zA-Z0-9]*$"
)

func (h Hooks) validateValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	s, path := &p.Spec, field.NewPath("spec")
	c := h.start(len(s.Variables) > 0)
	var was *policySpec
	if old != nil {
		was = new(validatingSpec(old))
		for _, v := range old.Spec.Validations {
			c.addStored(Validation, v.Expression)
			c.addStored(Message, v.MessageExpression)
		}
		for _, a := range old.Spec.AuditAnnotations {
			c.addStored(Audit, a.ValueExpression)
		}
	}
	errs := validatePolicySpec(c, validatingSpec(p), was, path)
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const one = "validations or auditAnnotations must contain at least one item"
		errs = append(errs, field.Required(path.Child("validations"), one), field.Required(path.Child("auditAnnotations"), one))
	}
	for i := range s.Validations {
		errs = append(errs, validateValidation(c, &s.Validations[i], s.ParamKind != nil, path.Child("validations").Index(i))...)
	}
	errs = append(errs, validateAuditAnnotations(c, p, path.Child("auditAnnotations"))...)
	return append(errs, validateStatic(p.Name, old == nil)...)
}

func (h Hooks) validateMutatingPolicy(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	s, path := &p.Spec, field.NewPath("spec")
	c := h.start(true)
	var was *policySpec
	if old != nil {
		was = new(mutatingSpec(old))
		for _, m := range old.Spec.Mutations {
			if m.ApplyConfiguration != nil {
				c.addStored(Configuration, m.ApplyConfiguration.Expression)
			}
		}
	}
	errs := validatePolicySpec(c, mutatingSpec(p), was, path)
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range s.Mutations {
		errs = append(errs, validateMutation(c, &s.Mutations[i], s.ParamKind != nil, path.Child("mutations").Index(i))...)
	}
	errs = append(errs, check.OneOfOrRequired(s.ReinvocationPolicy, path.Child("reinvocationPolicy"),
		admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	return append(errs, validateStatic(p.Name, old == nil)...)
}

// validatePolicySpec checks what both kinds of policies share. old is nil on create. Match conditions that do not change are not compiled
// again.
func validatePolicySpec(c *compiler, s policySpec, old *policySpec, path *field.Path) field.ErrorList {
	sameConditions := false
	if old != nil {
		sameConditions = equality.Semantic.DeepEqual(s.paramKind, old.paramKind) &&
			equality.Semantic.DeepEqual(s.conditions, old.conditions)
		for _, m := range old.conditions {
			c.addStored(Match, m.Expression)
		}
	}
	errs := requiredOneOf(*s.failurePolicy, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)
	if s.paramKind != nil {
		errs = append(errs, validateParamKind(s.paramKind, path.Child("paramKind"))...)
	}
	errs = append(errs, validateMatchConstraints(s, path.Child("matchConstraints"))...)
	if !sameConditions {
		errs = append(errs, validateConditions(c, s.conditions, s.paramKind != nil, path.Child("matchConditions"))...)
	}
	return append(errs, validateVariables(c, s.variables, s.paramKind != nil, path.Child("variables"))...)
}

func validateMatchConstraints(s policySpec, path *field.Path) field.ErrorList {
	if s.match == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateMatch(s.match, path)
	if len(s.match.ResourceRules) == 0 {
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	if s.mutates {
		errs = append(errs, validateMutable(s.match, path)...)
	}
	return errs
}

func validateParamKind(k *admissionv1.ParamKind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("apiVersion")
	switch slashes := strings.Count(k.APIVersion, "/"); {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at, ""))
	case slashes > 1:
		errs = append(errs, field.Invalid(at, k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion))
	default:
		group, version, divided := strings.Cut(k.APIVersion, "/")
		if !divided {
			group, version = "", group
		}
		if flaws := validation.IsDNS1123Subdomain(group); group != "" && len(flaws) > 0 {
			errs = append(errs, field.Invalid(at, group, strings.Join(flaws, ",")))
		}
		if version == "" {
			errs = append(errs, field.Invalid(at, k.APIVersion, "version must be specified"))
		} else if flaws := validation.IsDNS1035Label(version); len(flaws) > 0 {
			errs = append(errs, field.Invalid(at, version, strings.Join(flaws, ",")))
		}
	}
	if k.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), ""))
	} else if flaws := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(flaws) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind,
			"may have mixed case, but should otherwise match: "+strings.Join(flaws, ",")))
	}
	return errs
}

func isCELIdentifier(name string) bool {
	reserved := []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
		"if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
	}
	ok, err := regexp.MatchString(celIdentifier, name)
	return ok && err == nil && !slices.Contains(reserved, name)
}

func validateVariables(c *compiler, variables []admissionv1.Variable, params bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range variables {
		at := path.Index(i)
		if strings.TrimSpace(v.Name) == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		} else if !isCELIdentifier(v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		} else {
			errs = append(errs, c.check(at.Child("expression"),
				Expression{Use: Variable, Text: v.Expression, Name: v.Name, Params: params, Authorizer: true})...)
		}
	}
	return errs
}

func validateValidation(c *compiler, v *admissionv1.Validation, params bool, path *field.Path) field.ErrorList {
	const notEmpty = "must be non-empty if specified"
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, c.check(path.Child("expression"),
			Expression{Use: Validation, Text: v.Expression, Params: params, Authorizer: true})...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, notEmpty))
	default:
		errs = append(errs, c.check(path.Child("messageExpression"),
			Expression{Use: Message, Text: v.MessageExpression, Params: params})...)
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, notEmpty))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	return append(errs, check.OneOfIfSet(v.Reason, path.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge)...)
}

func validateAuditAnnotations(c *compiler, p *admissionv1.ValidatingAdmissionPolicy, path *field.Path) field.ErrorList {
	audits := p.Spec.AuditAnnotations
	var errs field.ErrorList
	if len(audits) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, check.GoFields(audits),
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	seen := map[string]bool{}
	for i, a := range audits {
		key, value := path.Index(i).Child("key"), path.Index(i).Child("valueExpression")
		if p.Name == "" {
			errs = append(errs, field.Invalid(key, a.Key, "requires metadata.name be non-empty"))
		} else {
			full := p.Name + "/" + a.Key
			errs = append(errs, check.QualifiedName(full, key)...)
		}
		switch text := strings.TrimSpace(a.ValueExpression); {
		case text == "":
			errs = append(errs, field.Required(value, "valueExpression is not specified"))
		case len(text) > maxAuditExpression:
			errs = append(errs, field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
		default:
			errs = append(errs, c.check(value,
				Expression{Use: Audit, Text: text, Show: a.ValueExpression, Params: p.Spec.ParamKind != nil, Authorizer: true})...)
		}
		if seen[a.Key] {
			errs = append(errs, field.Duplicate(key, a.Key))
		}
		seen[a.Key] = true
	}
	return errs
}

func validateMutation(c *compiler, m *admissionv1.Mutation, params bool, path *field.Path) field.ErrorList {
	patch, config := path.Child("jsonPatch"), path.Child("applyConfiguration")
	compile := func(text string, at *field.Path, use Use) field.ErrorList {
		trimmed := strings.TrimSpace(text)
		if trimmed == "" {
			return field.ErrorList{field.Required(at.Child("expression"), "")}
		}
		return c.check(at.Child("expression"), Expression{Use: use, Text: trimmed, Params: params, Authorizer: true})
	}
	var errs field.ErrorList
	switch m.PatchType {
	case "":
		errs = append(errs, field.Required(path.Child("patchType"), ""))
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(patch, "must be specified when patchType is JSONPatch"))
		} else {
			errs = append(errs, compile(m.JSONPatch.Expression, patch, Patch)...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(config, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(config, "must be specified when patchType is ApplyConfiguration"))
		} else {
			errs = append(errs, compile(m.ApplyConfiguration.Expression, config, Configuration)...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(patch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		errs = append(errs, check.OneOf(m.PatchType, path.Child("patchType"), admissionv1.PatchTypeApplyConfiguration,
			admissionv1.PatchTypeJSONPatch)...)
	}
	return errs
}

func validatePolicyStatus(p, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	var errs field.ErrorList
	if t := p.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			at := field.NewPath("status", "typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			ref := strings.TrimSpace(w.FieldRef)
			if ref == "" {
				errs = append(errs, field.Required(at.Child("fieldRef"), ""))
			} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
				errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, fmt.Sprintf("invalid JSONPath: %v", err)))
			}
		}
	}
	return append(errs, metav1validation.ValidateConditions(p.Status.Conditions, field.NewPath("status", "conditions"))...)
}

package admissionregistration

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hook is what both kinds of webhook share.
type hook struct {
	name                              string
	client                            *admissionv1.WebhookClientConfig
	rules                             []admissionv1.RuleWithOperations
	failure                           *admissionv1.FailurePolicyType
	match                             *admissionv1.MatchPolicyType
	namespaceSelector, objectSelector *metav1.LabelSelector
	effects                           *admissionv1.SideEffectClass
	timeout                           *int32
	versions                          []string
	conditions                        []admissionv1.MatchCondition
	reinvocation                      *admissionv1.ReinvocationPolicyType
}

func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector, w.SideEffects,
			w.TimeoutSeconds, w.AdmissionReviewVersions, w.MatchConditions, w.ReinvocationPolicy}
	}
	return hooks
}

func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector, w.SideEffects,
			w.TimeoutSeconds, w.AdmissionReviewVersions, w.MatchConditions, nil}
	}
	return hooks
}

func (h Hooks) validateMutatingConfig(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	var was []hook
	if old != nil {
		was = mutatingHooks(old)
	}
	return append(h.validateHooks(mutatingHooks(c), was, old == nil), validateStatic(c.Name, old == nil)...)
}

func (h Hooks) validateValidatingConfig(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
	var was []hook
	if old != nil {
		was = validatingHooks(old)
	}
	return append(h.validateHooks(validatingHooks(c), was, old == nil), validateStatic(c.Name, old == nil)...)
}

// lenience lists the flaws that the stored configuration has and the new one may therefore have.
type lenience struct{ effects, versions, names, labels, conditions bool }

func noEffects() []admissionv1.SideEffectClass {
	return []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
}

func knownVersion(v string) bool { return v == "v1" || v == "v1beta1" }

func lenient(hooks, was []hook) lenience {
	l := lenience{conditions: len(hooks) == len(was)}
	names := map[string]bool{}
	var opts metav1validation.LabelSelectorValidationOptions
	for i, h := range was {
		l.effects = l.effects || h.effects == nil || !slices.Contains(noEffects(), *h.effects)
		l.versions = l.versions || len(h.versions) > 0 && !slices.ContainsFunc(h.versions, knownVersion)
		l.names = l.names || names[h.name]
		names[h.name] = true
		for _, s := range []*metav1.LabelSelector{h.namespaceSelector, h.objectSelector} {
			l.labels = l.labels || s != nil && len(metav1validation.ValidateLabelSelector(s, opts, nil)) > 0
		}
		l.conditions = l.conditions && reflect.DeepEqual(hooks[i].conditions, h.conditions)
	}
	return l
}

func (h Hooks) validateHooks(hooks, was []hook, created bool) field.ErrorList {
	var allow lenience
	c := h.start(false)
	if !created {
		allow = lenient(hooks, was)
		for _, w := range was {
			for _, m := range w.conditions {
				c.had(Match, m.Expression)
			}
		}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range hooks {
		w, path := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(c, w, allow, path)...)
		errs = append(errs, validateVersions(w.versions, allow.versions, path.Child("admissionReviewVersions"))...)
		if !allow.names && w.name != "" && names[w.name] {
			errs = append(errs, field.Duplicate(path.Child("name"), w.name))
		}
		names[w.name] = true
	}
	return errs
}

func validateHook(c *compiler, w *hook, allow lenience, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), w.name)
	for i := range w.rules {
		errs = append(errs, validateRule(&w.rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, ifSet(w.failure, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, ifSet(w.match, path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	effects := noEffects()
	if allow.effects {
		effects = append(effects, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	if w.effects == nil {
		words := make([]string, len(effects))
		for i, e := range effects {
			words[i] = string(e)
		}
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of "+strings.Join(words, ", ")))
	} else {
		errs = append(errs, oneOf(*w.effects, path.Child("sideEffects"), effects...)...)
	}
	if t := w.timeout; t != nil && (*t > 30 || *t < 1) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: allow.labels}
	errs = append(errs, metav1validation.ValidateLabelSelector(w.namespaceSelector, opts, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(w.objectSelector, opts, path.Child("objectSelector"))...)
	errs = append(errs, ifSet(w.reinvocation, path.Child("reinvocationPolicy"), admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	errs = append(errs, validateClient(w.client, path.Child("clientConfig"))...)
	if !allow.conditions {
		errs = append(errs, validateConditions(c, w.conditions, false, path.Child("matchConditions"))...)
	}
	return errs
}

func validateVersions(versions []string, anyVersion bool, path *field.Path) field.ErrorList {
	const known = "v1, v1beta1"
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+known)}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		for _, message := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, message))
		}
	}
	if !anyVersion && !slices.ContainsFunc(versions, knownVersion) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+known))
	}
	return errs
}

func validateClient(c *admissionv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return validateURL(*c.URL, path.Child("url"))
	}
	return validateService(c.Service, path.Child("service"))
}

func validateURL(text string, path *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	for _, rule := range []struct {
		broken bool
		value  string
		text   string
	}{
		{u.Scheme != "https", u.Scheme, "'https' is the only allowed URL scheme" + form},
		{u.Host == "", u.Host, "host must be specified" + form},
		{u.User != nil, u.User.String(), "user information is not permitted in the URL"},
		{u.Fragment != "", u.Fragment, "fragments are not permitted in the URL"},
		{u.RawQuery != "", u.RawQuery, "query parameters are not permitted in the URL"},
	} {
		if rule.broken {
			errs = append(errs, field.Invalid(path, rule.value, rule.text))
		}
	}
	return errs
}

func validateService(s *admissionv1.ServiceReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// A missing namespace is reported as a missing name and the other way round; clients know it so.
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	var port int32
	if s.Port != nil {
		port = *s.Port
	}
	if messages := validation.IsValidPortNum(int(port)); messages != nil {
		errs = append(errs, field.Invalid(path.Child("port"), port, "port is not valid: "+strings.Join(messages, ", ")))
	}
	if s.Path != nil {
		errs = append(errs, validatePath(*s.Path, path.Child("path"))...)
	}
	return errs
}

func validatePath(text string, path *field.Path) field.ErrorList {
	switch text {
	case "", "/":
		return nil
	case "//":
		return field.ErrorList{field.Invalid(path, text, "segment[0] may not be empty")}
	}
	var errs field.ErrorList
	if text[0] != '/' {
		errs = append(errs, field.Invalid(path, text, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, message := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d]: %v", i, message)))
		}
	}
	return errs
}

// warnHooks tells about rules for questions, which are never sent to webhooks.
func warnHooks(hooks []hook) []string {
	unasked := map[schema.GroupResource]bool{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
		{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	}
	var warnings []string
	for i, h := range hooks {
		for j, r := range h.rules {
			if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
				continue
			}
			var told []schema.GroupResource
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					gr := schema.GroupResource{Group: g, Resource: resource}
					if unasked[gr] && !slices.Contains(told, gr) {
						told = append(told, gr)
						warnings = append(warnings, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, gr))
					}
				}
			}
		}
	}
	return warnings
}

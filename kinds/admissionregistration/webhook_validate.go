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

	"proa.dev/kinds/lib/check"
)

// webhookAllowances says which of today's rules a configuration may break because the stored one breaks them already.
type webhookAllowances struct{ effects, versions, names, labels, conditions bool }

// harmlessSideEffects returns the classes that a new webhook may declare: a dry run must change nothing.
func harmlessSideEffects() []admissionv1.SideEffectClass {
	return []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
}

func isKnownVersion(v string) bool { return v == "v1" || v == "v1beta1" }

func allowancesOf(hooks, was []admissionv1.MutatingWebhook) webhookAllowances {
	l := webhookAllowances{conditions: len(hooks) == len(was)}
	names := map[string]bool{}
	var opts metav1validation.LabelSelectorValidationOptions
	for i, h := range was {
		l.effects = l.effects || h.SideEffects == nil || !slices.Contains(harmlessSideEffects(), *h.SideEffects)
		l.versions = l.versions || len(h.AdmissionReviewVersions) > 0 && !slices.ContainsFunc(h.AdmissionReviewVersions, isKnownVersion)
		l.names = l.names || names[h.Name]
		names[h.Name] = true
		for _, s := range []*metav1.LabelSelector{h.NamespaceSelector, h.ObjectSelector} {
			l.labels = l.labels || s != nil && len(metav1validation.ValidateLabelSelector(s, opts, nil)) > 0
		}
		l.conditions = l.conditions && reflect.DeepEqual(hooks[i].MatchConditions, h.MatchConditions)
	}
	return l
}

func (h Hooks) validateWebhooks(hooks, was []admissionv1.MutatingWebhook, created bool) field.ErrorList {
	var allow webhookAllowances
	c := h.start(false)
	if !created {
		allow = allowancesOf(hooks, was)
		for _, w := range was {
			for _, m := range w.MatchConditions {
				c.addStored(Match, m.Expression)
			}
		}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range hooks {
		w, path := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(c, w, allow, path)...)
		errs = append(errs, validateVersions(w.AdmissionReviewVersions, allow.versions, path.Child("admissionReviewVersions"))...)
		if !allow.names && w.Name != "" && names[w.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), w.Name))
		}
		names[w.Name] = true
	}
	return errs
}

func validateWebhook(c *compiler, w *admissionv1.MutatingWebhook, allow webhookAllowances, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), w.Name)
	for i := range w.Rules {
		errs = append(errs, validateRule(&w.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, check.OneOfIfSet(w.FailurePolicy, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, check.OneOfIfSet(w.MatchPolicy, path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	effects := harmlessSideEffects()
	if allow.effects {
		effects = append(effects, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	if w.SideEffects == nil {
		words := make([]string, len(effects))
		for i, e := range effects {
			words[i] = string(e)
		}
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of "+strings.Join(words, ", ")))
	} else {
		errs = append(errs, check.OneOf(*w.SideEffects, path.Child("sideEffects"), effects...)...)
	}
	if t := w.TimeoutSeconds; t != nil && (*t > 30 || *t < 1) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: allow.labels}
	errs = append(errs, metav1validation.ValidateLabelSelector(w.NamespaceSelector, opts, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(w.ObjectSelector, opts, path.Child("objectSelector"))...)
	errs = append(errs, check.OneOfIfSet(w.ReinvocationPolicy, path.Child("reinvocationPolicy"), admissionv1.IfNeededReinvocationPolicy,
		admissionv1.NeverReinvocationPolicy)...)
	errs = append(errs, validateClient(&w.ClientConfig, path.Child("clientConfig"))...)
	if !allow.conditions {
		errs = append(errs, validateConditions(c, w.MatchConditions, false, path.Child("matchConditions"))...)
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
	if !anyVersion && !slices.ContainsFunc(versions, isKnownVersion) {
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
	// A missing namespace is reported as a missing name and the other way round, as upstream does.
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

// webhookWarnings warns of rules about reviews, which are never sent to webhooks.
func webhookWarnings(hooks []admissionv1.MutatingWebhook) []string {
	reviews := map[schema.GroupResource]bool{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
		{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	}
	var warnings []string
	for i, h := range hooks {
		for j, r := range h.Rules {
			if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
				continue
			}
			var warned []schema.GroupResource
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					gr := schema.GroupResource{Group: g, Resource: resource}
					if reviews[gr] && !slices.Contains(warned, gr) {
						warned = append(warned, gr)
						warnings = append(warnings, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, gr))
					}
				}
			}
		}
	}
	return warnings
}

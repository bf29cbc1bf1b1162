package admissionregistration

import (
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

const webhooksDoc = "Webhooks indicates the number of webhooks registered in this configuration"

// MutatingWebhookConfigurations name servers that may change objects on their way in.
func MutatingWebhookConfigurations(h Hooks) *kind.Def {
	type config = admissionv1.MutatingWebhookConfiguration
	return kind.Define(kind.Resource[config]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations", Scope: kind.Cluster,
		Categories:   []string{"api-extensions"},
		Generation:   true,
		Changed:      func(c, old *config) bool { return !reflect.DeepEqual(c.Webhooks, old.Webhooks) },
		AnyFinalizer: true,
		Conditional:  true,
		Default: func(c *config) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				defaultClient(&w.ClientConfig)
				defaultRules(w.Rules)
				fill(&w.FailurePolicy, admissionv1.Fail)
				fill(&w.MatchPolicy, admissionv1.Equivalent)
				fill(&w.NamespaceSelector, metav1.LabelSelector{})
				fill(&w.ObjectSelector, metav1.LabelSelector{})
				fill(&w.TimeoutSeconds, 10)
				fill(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			}
		},
		Validate: h.validateMutatingConfig,
		Warn: func(c, old *config) []string {
			return append(staticWarning(c.Name, old != nil), warnHooks(mutatingHooks(c))...)
		},
		Columns: []kind.Column[config]{
			kind.NameColumn[config](),
			{Name: "Webhooks", Type: "integer", Description: webhooksDoc, Value: func(c *config) any { return int64(len(c.Webhooks)) }},
			kind.AgeColumn[config](),
		},
	})
}

// ValidatingWebhookConfigurations name servers that may refuse objects.
func ValidatingWebhookConfigurations(h Hooks) *kind.Def {
	type config = admissionv1.ValidatingWebhookConfiguration
	return kind.Define(kind.Resource[config]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations", Scope: kind.Cluster,
		Categories:   []string{"api-extensions"},
		Generation:   true,
		Changed:      func(c, old *config) bool { return !reflect.DeepEqual(c.Webhooks, old.Webhooks) },
		AnyFinalizer: true,
		Conditional:  true,
		Default: func(c *config) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				defaultClient(&w.ClientConfig)
				defaultRules(w.Rules)
				fill(&w.FailurePolicy, admissionv1.Fail)
				fill(&w.MatchPolicy, admissionv1.Equivalent)
				fill(&w.NamespaceSelector, metav1.LabelSelector{})
				fill(&w.ObjectSelector, metav1.LabelSelector{})
				fill(&w.TimeoutSeconds, 10)
			}
		},
		Validate: h.validateValidatingConfig,
		Warn: func(c, old *config) []string {
			return append(staticWarning(c.Name, old != nil), warnHooks(validatingHooks(c))...)
		},
		Columns: []kind.Column[config]{
			kind.NameColumn[config](),
			{Name: "Webhooks", Type: "integer", Description: webhooksDoc, Value: func(c *config) any { return int64(len(c.Webhooks)) }},
			kind.AgeColumn[config](),
		},
	})
}

package admissionregistration

import (
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// MutatingWebhookConfigurations name servers that may change objects before they are stored.
func MutatingWebhookConfigurations(h Hooks) *kind.Def {
	type config = admissionv1.MutatingWebhookConfiguration
	return kind.Define(webhookResource(h, webhookKind[config]{
		name: "MutatingWebhookConfiguration", plural: "mutatingwebhookconfigurations",
		webhooks:    func(c *config) []admissionv1.MutatingWebhook { return c.Webhooks },
		setWebhooks: func(c *config, hooks []admissionv1.MutatingWebhook) { c.Webhooks = hooks },
	}))
}

// ValidatingWebhookConfigurations name servers that may refuse objects.
func ValidatingWebhookConfigurations(h Hooks) *kind.Def {
	type config = admissionv1.ValidatingWebhookConfiguration
	return kind.Define(webhookResource(h, webhookKind[config]{
		name: "ValidatingWebhookConfiguration", plural: "validatingwebhookconfigurations",
		webhooks: func(c *config) []admissionv1.MutatingWebhook {
			if c.Webhooks == nil {
				return nil
			}
			hooks := make([]admissionv1.MutatingWebhook, len(c.Webhooks))
			for i := range c.Webhooks {
				hooks[i] = asMutating(&c.Webhooks[i])
			}
			return hooks
		},
		setWebhooks: func(c *config, hooks []admissionv1.MutatingWebhook) {
			for i := range hooks {
				c.Webhooks[i] = asValidating(&hooks[i])
			}
		},
	}))
}

// webhookKind is what differs between the two kinds of webhook configurations. Both work on webhooks of the mutating kind, which has all
// fields of the other.
type webhookKind[T any] struct {
	name, plural string
	webhooks     func(*T) []admissionv1.MutatingWebhook
	setWebhooks  func(*T, []admissionv1.MutatingWebhook) // takes as many as webhooks returned
}

func asMutating(w *admissionv1.ValidatingWebhook) admissionv1.MutatingWebhook {
	return admissionv1.MutatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

// asValidating drops the reinvocation policy, which only mutating webhooks have.
func asValidating(w *admissionv1.MutatingWebhook) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func webhookResource[T any, P interface {
	*T
	kind.Object
}](h Hooks, k webhookKind[T]) kind.Resource[T] {
	return kind.Resource[T]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1", Kind: k.name}, Plural: k.plural,
			Scope:                   kind.Cluster,
			Categories:              []string{"api-extensions"},
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Changed:      func(c, old *T) bool { return !reflect.DeepEqual(k.webhooks(c), k.webhooks(old)) },
		AnyFinalizer: true,
		Default: func(c *T) {
			hooks := k.webhooks(c)
			for i := range hooks {
				defaultWebhook(&hooks[i])
			}
			k.setWebhooks(c, hooks)
		},
		Validate: func(c, old *T) field.ErrorList {
			var was []admissionv1.MutatingWebhook
			if old != nil {
				was = k.webhooks(old)
			}
			return append(h.validateWebhooks(k.webhooks(c), was, old == nil), validateStatic(P(c).GetName(), old == nil)...)
		},
		Warn: func(c, old *T) []string {
			return append(staticWarning(P(c).GetName(), old != nil), webhookWarnings(k.webhooks(c))...)
		},
		Columns: []kind.Column[T]{
			kind.NameColumn[T, P](),
			{Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration",
				Value: func(c *T) any { return int64(len(k.webhooks(c))) }},
			kind.AgeColumn[T, P](),
		},
	}
}

func defaultWebhook(w *admissionv1.MutatingWebhook) {
	if s := w.ClientConfig.Service; s != nil {
		defaulting.IfNil(&s.Port, 443)
	}
	for i := range w.Rules {
		defaulting.IfNil(&w.Rules[i].Scope, admissionv1.AllScopes)
	}
	defaulting.IfNil(&w.FailurePolicy, admissionv1.Fail)
	defaulting.IfNil(&w.MatchPolicy, admissionv1.Equivalent)
	defaulting.IfNil(&w.NamespaceSelector, metav1.LabelSelector{})
	defaulting.IfNil(&w.ObjectSelector, metav1.LabelSelector{})
	defaulting.IfNil(&w.TimeoutSeconds, 10)
	defaulting.IfNil(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
}

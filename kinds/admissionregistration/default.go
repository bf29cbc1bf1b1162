package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fill sets *p when nothing is there.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = new(value)
	}
}

func defaultClient(c *admissionv1.WebhookClientConfig) {
	if c.Service != nil {
		fill(&c.Service.Port, 443)
	}
}

func defaultRules(rules []admissionv1.RuleWithOperations) {
	for i := range rules {
		fill(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultNamedRules(rules []admissionv1.NamedRuleWithOperations) {
	for i := range rules {
		fill(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	fill(&m.MatchPolicy, admissionv1.Equivalent)
	fill(&m.NamespaceSelector, metav1.LabelSelector{})
	fill(&m.ObjectSelector, metav1.LabelSelector{})
	defaultNamedRules(m.ResourceRules)
	defaultNamedRules(m.ExcludeResourceRules)
}

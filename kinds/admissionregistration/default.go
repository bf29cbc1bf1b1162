package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/defaulting"
)

func defaultNamedRules(rules []admissionv1.NamedRuleWithOperations) {
	for i := range rules {
		defaulting.IfNil(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	defaulting.IfNil(&m.MatchPolicy, admissionv1.Equivalent)
	defaulting.IfNil(&m.NamespaceSelector, metav1.LabelSelector{})
	defaulting.IfNil(&m.ObjectSelector, metav1.LabelSelector{})
	defaultNamedRules(m.ResourceRules)
	defaultNamedRules(m.ExcludeResourceRules)
}

// Package match decides which webhooks and policies a write concerns, by their rules and selectors. A decision reads the write, and the labels of its
// namespace where a selector asks for them; nothing is called and nothing is changed. Webhook configurations and policies themselves
// are concerned by none: a broken one must not keep others from mending it.
package match

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Criteria say which writes a webhook or a policy wants to see. They are immutable once made.
type Criteria struct {
	rules, excluded []rule
	anyResource     bool // there are no rules, and none are needed
	exact           bool // only the version that the request names counts
	namespaces      labels.Selector
	objects         labels.Selector
	err             error // a selector that cannot be understood
}

// rule is a rule with the names of the objects that it is for; none for all.
type rule struct {
	admissionv1.RuleWithOperations
	names []string
}

// ForWebhook makes the criteria of a webhook. Without rules it sees nothing.
func ForWebhook(rules []admissionv1.RuleWithOperations, policy *admissionv1.MatchPolicyType, namespaces, objects *metav1.LabelSelector) *Criteria {
	c := &Criteria{exact: isExact(policy)}
	for _, r := range rules {
		c.rules = append(c.rules, rule{RuleWithOperations: r})
	}
	c.selectors(namespaces, objects)
	return c
}

// ForPolicy makes the criteria of a policy or of a binding. Without rules it sees everything, and without any criteria too.
func ForPolicy(m *admissionv1.MatchResources) *Criteria {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	c := &Criteria{anyResource: len(m.ResourceRules) == 0, exact: isExact(m.MatchPolicy), rules: named(m.ResourceRules), excluded: named(m.ExcludeResourceRules)}
	c.selectors(m.NamespaceSelector, m.ObjectSelector)
	return c
}

func named(rules []admissionv1.NamedRuleWithOperations) (out []rule) {
	for _, r := range rules {
		out = append(out, rule{r.RuleWithOperations, r.ResourceNames})
	}
	return out
}

func isExact(p *admissionv1.MatchPolicyType) bool { return p == nil || *p == admissionv1.Exact }

// selectors reads the selectors. One that is not there selects everything.
func (c *Criteria) selectors(namespaces, objects *metav1.LabelSelector) {
	read := func(s *metav1.LabelSelector) labels.Selector {
		if s == nil {
			return labels.Everything()
		}
		out, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			c.err = err
			return labels.Everything()
		}
		return out
	}
	c.namespaces, c.objects = read(namespaces), read(objects)
}

// finalizer is who deletes the objects of definitions that are being deleted.
const finalizer = "system:serviceaccount:kube-system:crd-finalizer"

// IsCleanup reports whether a write is a deletion that follows from that of a definition, which webhooks and policies have seen. An operator
// that is gone with its webhooks does not keep its definitions.
func IsCleanup(a *kind.Admission) bool {
	return a.Verb == "delete" && a.Served.Terminating && a.User.GetName() == finalizer
}

// IsExempt reports whether no webhook and no policy may see a write: it is one of their own objects, or cleans up after a definition.
func IsExempt(a *kind.Admission) bool {
	return IsCleanup(a) || a.Def.Group == admissionv1.GroupName && slices.Contains([]string{
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}, a.Def.Kind)
}

// Matches returns the version of the resource in which the write is to be seen, or nil if it is not. An error is one of the selectors,
// of a write that the rules are about.
func (c *Criteria) Matches(ctx context.Context, a *kind.Admission) (*kind.Def, error) {
	if c.find(c.excluded, a) != nil {
		return nil, nil
	}
	def := a.Served
	if !c.anyResource {
		def = c.find(c.rules, a)
	}
	if def == nil || !c.selectsObject(a) {
		return nil, nil
	}
	selected, err := c.selectsNamespace(ctx, a)
	if err == nil && c.err != nil && selected {
		err = apierrors.NewInternalError(c.err)
	}
	if err != nil || !selected {
		return nil, err
	}
	return def, nil
}

// find returns the version that the first of the rules is about which is about this write: the one of the request, or another one of the same
// resource where that counts too.
func (c *Criteria) find(rules []rule, a *kind.Admission) *kind.Def {
	for i := range rules {
		if rules[i].matches(a, a.Served) {
			return a.Served
		}
	}
	if c.exact || len(rules) == 0 || a.Versions == nil {
		return nil
	}
	versions := a.Versions(a.Def.Resource())
	for i := range rules {
		for _, other := range versions {
			if other.GroupVersionKind != a.Served.GroupVersionKind && (a.Sub == "" || other.Sub(a.Sub) != nil) && rules[i].matches(a, other) {
				return other
			}
		}
	}
	return nil
}

// matches says whether a rule is about a write, if that were one of this version.
func (r *rule) matches(a *kind.Admission, def *kind.Def) bool {
	return r.matchesScope(a) &&
		slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
			return o == admissionv1.OperationAll || string(o) == Operation(a)
		}) &&
		isOneOf(r.APIGroups, def.Group) && isOneOf(r.APIVersions, def.Version) &&
		slices.ContainsFunc(r.Resources, func(text string) bool {
			resource, sub, _ := strings.Cut(text, "/")
			return (resource == "*" || resource == def.Plural) && (sub == "*" || sub == a.Sub)
		}) &&
		(len(r.names) == 0 || slices.Contains(r.names, a.Name))
}

func isOneOf(wanted []string, is string) bool {
	return slices.ContainsFunc(wanted, func(s string) bool { return s == "*" || s == is })
}

// matchesScope says whether a rule is about objects with a namespace, or without, as that of the write is. Namespaces are without.
func (r *rule) matchesScope(a *kind.Admission) bool {
	inside := Namespace(a) != "" && !isNamespace(a)
	switch {
	case r.Scope == nil || *r.Scope == admissionv1.AllScopes:
		return true
	case *r.Scope == admissionv1.NamespacedScope:
		return inside
	}
	return *r.Scope == admissionv1.ClusterScope && !inside
}

// Operation is what a write does, as rules name it.
func Operation(a *kind.Admission) string { return strings.ToUpper(a.Verb) }

// Kind is the kind of what is sent to a version of a resource, or to its subresource.
func Kind(def *kind.Def, sub string) schema.GroupVersionKind {
	if s := def.Sub(sub); s != nil && s.Body != nil {
		return s.Body.GroupVersionKind
	}
	return def.GroupVersionKind
}

func isNamespace(a *kind.Admission) bool { return a.Def.Group == "" && a.Def.Plural == "namespaces" }

// Namespace is that of the write. A Namespace is in itself.
func Namespace(a *kind.Admission) string {
	if isNamespace(a) {
		return a.Name
	}
	return a.Namespace
}

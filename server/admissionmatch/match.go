// Package admissionmatch decides which webhooks and policies match a write, by their rules and selectors. A decision
// reads the write, and the labels of its namespace where a selector needs them; it calls nobody and changes nothing.
// Webhook configurations and policies themselves are exempt: a broken one must not keep others from fixing it.
package admissionmatch

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

// Criteria say which writes a webhook or a policy matches. They are immutable.
type Criteria struct {
	rules, excluded []rule
	anyResource     bool // there are no rules, and none are needed
	exact           bool // only the version that the request names counts
	namespaces      labels.Selector
	objects         labels.Selector
	err             error // why a selector is invalid
}

// rule is a rule with the names of the objects that it matches; none for all.
type rule struct {
	admissionv1.RuleWithOperations
	names []string
}

// ForWebhook returns the criteria of a webhook. Without rules it matches nothing.
func ForWebhook(rules []admissionv1.RuleWithOperations, policy *admissionv1.MatchPolicyType, namespaces,
	objects *metav1.LabelSelector) *Criteria {
	c := &Criteria{exact: isExact(policy)}
	for _, r := range rules {
		c.rules = append(c.rules, rule{RuleWithOperations: r})
	}
	c.selectors(namespaces, objects)
	return c
}

// ForPolicy returns the criteria of a policy or of a binding. Without rules it matches every resource.
func ForPolicy(m *admissionv1.MatchResources) *Criteria {
	if m == nil {
		m = &admissionv1.MatchResources{}
	}
	c := &Criteria{anyResource: len(m.ResourceRules) == 0, exact: isExact(m.MatchPolicy), rules: named(m.ResourceRules),
		excluded: named(m.ExcludeResourceRules)}
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

// selectors parses the selectors. A missing one selects everything.
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

// finalizer is the user that deletes the objects of a CustomResourceDefinition that is being deleted.
const finalizer = "system:serviceaccount:kube-system:crd-finalizer"

// IsCleanup reports whether a write is a deletion that follows from that of a CustomResourceDefinition, which webhooks
// and policies have seen. So an operator that was removed together with its webhooks does not keep its definitions from
// being deleted.
func IsCleanup(a *kind.Admission) bool {
	return a.Verb == "delete" && a.Served.Terminating && a.User.GetName() == finalizer
}

// IsExempt reports whether no webhook and no policy may match a write: it is one of their own objects, or the cleanup
// after a definition.
func IsExempt(a *kind.Admission) bool {
	return IsCleanup(a) || a.Def.Group == admissionv1.GroupName && slices.Contains([]string{
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}, a.Def.Kind)
}

// Matches returns the version of the resource in which the webhook or policy sees the write, or nil if it does not
// match. The error is that of a selector, for a write that the rules match.
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

// find returns the version in which the first of the matching rules matches the write: the one of the request, or,
// unless the match policy is Exact, another one of the same resource.
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
			if other.GroupVersionKind != a.Served.GroupVersionKind && (a.Sub == "" || other.Sub(a.Sub) != nil) &&
				rules[i].matches(a, other) {
				return other
			}
		}
	}
	return nil
}

// matches reports whether a rule matches a write as if that were of this version.
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

// matchesScope reports whether a rule has the scope of the write. Namespaces count as cluster-scoped.
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

// Operation returns the operation of a write, as rules name it.
func Operation(a *kind.Admission) string { return strings.ToUpper(a.Verb) }

// Kind returns the kind of the body for a version of a resource, or for its subresource.
func Kind(def *kind.Def, sub string) schema.GroupVersionKind {
	if s := def.Sub(sub); s != nil && s.Body != nil {
		return s.Body.GroupVersionKind
	}
	return def.GroupVersionKind
}

func isNamespace(a *kind.Admission) bool { return a.Def.Group == "" && a.Def.Plural == "namespaces" }

// Namespace returns the namespace of the write. A Namespace is in itself.
func Namespace(a *kind.Admission) string {
	if isNamespace(a) {
		return a.Name
	}
	return a.Namespace
}

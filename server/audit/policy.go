package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/apis/audit/validation"
	"sigs.k8s.io/yaml"
)

// policy decides how much of a request is recorded: the first rule that matches counts, and without one nothing is
// recorded.
type policy struct{ auditv1.Policy }

// policyDecision is what a policy decides about one request.
type policyDecision struct {
	level       auditv1.Level
	omit        []auditv1.Stage
	omitManaged bool
}

func (v *policyDecision) atLeast(level auditv1.Level) bool { return rank(v.level) >= rank(level) }

func rank(l auditv1.Level) int {
	return slices.Index([]auditv1.Level{auditv1.LevelNone, auditv1.LevelMetadata, auditv1.LevelRequest, auditv1.LevelRequestResponse}, l)
}

// defaultPolicy records who did what, and no bodies, so that no secret gets into the log unless somebody asks for it.
func defaultPolicy() *policy {
	return &policy{auditv1.Policy{Rules: []auditv1.PolicyRule{
		{Level: auditv1.LevelNone, Verbs: []string{"get", "head"}, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
		{Level: auditv1.LevelMetadata},
	}}}
}

// parsePolicy reads a policy file. Unknown fields only cause a warning, as upstream.
func parsePolicy(text []byte, log *slog.Logger) (*policy, error) {
	p := &policy{}
	if err := yaml.UnmarshalStrict(text, &p.Policy); err != nil {
		p = &policy{}
		if lenient := yaml.Unmarshal(text, &p.Policy); lenient != nil {
			return nil, fmt.Errorf("failed decoding: %w", lenient)
		}
		log.Warn("the audit policy contains errors, which are ignored", "err", err)
	}
	gvk := p.GroupVersionKind()
	if gvk.GroupVersion() != auditv1.SchemeGroupVersion || gvk.Kind != "Policy" {
		return nil, fmt.Errorf("unknown group version field %v in policy", gvk)
	}
	in := &audit.Policy{}
	if err := auditv1.Convert_v1_Policy_To_audit_Policy(&p.Policy, in, nil); err != nil {
		return nil, err
	}
	if errs := validation.ValidatePolicy(in); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if len(p.Rules) == 0 {
		return nil, errors.New("loaded illegal policy with 0 rules")
	}
	return p, nil
}

func (p *policy) decide(r *Request) policyDecision {
	for i := range p.Rules {
		rule := &p.Rules[i]
		if !matches(rule, r) {
			continue
		}
		v := policyDecision{level: rule.Level, omit: rule.OmitStages, omitManaged: p.OmitManagedFields}
		if len(p.OmitStages) > 0 {
			v.omit = slices.Concat(p.OmitStages, rule.OmitStages)
		}
		if rule.OmitManagedFields != nil {
			v.omitManaged = *rule.OmitManagedFields
		}
		return v
	}
	return policyDecision{level: auditv1.LevelNone}
}

func matches(rule *auditv1.PolicyRule, r *Request) bool {
	if len(rule.Users) > 0 && (r.User == nil || !slices.Contains(rule.Users, r.User.GetName())) {
		return false
	}
	if len(rule.UserGroups) > 0 && (r.User == nil || !intersects(rule.UserGroups, r.User.GetGroups())) {
		return false
	}
	if len(rule.Verbs) > 0 && !slices.Contains(rule.Verbs, r.Verb) {
		return false
	}
	switch {
	case len(rule.Namespaces) > 0 || len(rule.Resources) > 0:
		return r.IsResource && matchesResource(rule, r)
	case len(rule.NonResourceURLs) > 0:
		return !r.IsResource && slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			start, open := strings.CutSuffix(url, "*")
			return url == r.Path || (open && strings.HasPrefix(r.Path, start))
		})
	}
	return true
}

func intersects(a, b []string) bool {
	return slices.ContainsFunc(b, func(s string) bool { return slices.Contains(a, s) })
}

func matchesResource(rule *auditv1.PolicyRule, r *Request) bool {
	if len(rule.Namespaces) > 0 && !slices.Contains(rule.Namespaces, r.Namespace) {
		return false
	}
	if len(rule.Resources) == 0 {
		return true
	}
	return slices.ContainsFunc(rule.Resources, func(g auditv1.GroupResources) bool {
		if g.Group != "*" && g.Group != r.Group {
			return false
		}
		if len(g.Resources) == 0 {
			return true
		}
		named := len(g.ResourceNames) == 0 || slices.Contains(g.ResourceNames, r.Name)
		return named && slices.ContainsFunc(g.Resources, func(want string) bool { return matchesName(want, r) })
	})
}

// matchesName compares a resource of a rule: "pods", "pods/log", "*/log", "pods/*" or "*". The name of a resource alone
// does not include its subresources.
func matchesName(want string, r *Request) bool {
	if want == "*" {
		return true
	}
	resource, sub, split := strings.Cut(want, "/")
	if !split {
		return want == r.Resource && r.Subresource == ""
	}
	switch {
	case sub == "*":
		return resource == r.Resource
	case resource == "*":
		return sub == r.Subresource && sub != ""
	}
	return resource == r.Resource && sub == r.Subresource
}

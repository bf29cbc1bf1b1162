package fairqueue

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// schema classifies requests.
type schema struct {
	name          string
	uid, levelUID types.UID
	level         *level
	rules         []flowcontrolv1.PolicyRulesWithSubjects
	by            flowcontrolv1.FlowDistinguisherMethodType // empty for a single flow
	counters      *counters
}

func newSchema(config *flowcontrolv1.FlowSchema, l *level, c *counters) *schema {
	s := &schema{name: config.Name, uid: config.UID, levelUID: l.uid, level: l, rules: config.Spec.Rules, counters: c}
	if m := config.Spec.DistinguisherMethod; m != nil {
		s.by = m.Type
	}
	return s
}

// distinguish returns the value that distinguishes the flows of a schema.
func (s *schema) distinguish(a *Request) string {
	switch s.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return a.User.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return a.Namespace
	}
	return ""
}

func (s *schema) matches(a *Request) bool {
	for i := range s.rules {
		r := &s.rules[i]
		if !slices.ContainsFunc(r.Subjects, func(sub flowcontrolv1.Subject) bool { return matchesSubject(a.User, &sub) }) {
			continue
		}
		if a.IsResource {
			if slices.ContainsFunc(r.ResourceRules, func(rr flowcontrolv1.ResourcePolicyRule) bool { return matchesResource(&rr, a) }) {
				return true
			}
		} else if slices.ContainsFunc(r.NonResourceRules, func(nr flowcontrolv1.NonResourcePolicyRule) bool {
			return containsOrAll(nr.Verbs, a.Verb) && matchesPath(nr.NonResourceURLs, a.Path)
		}) {
			return true
		}
	}
	return false
}

// matchesSubject reports whether a user is, or belongs to, a subject.
func matchesSubject(u user.Info, s *flowcontrolv1.Subject) bool {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == u.GetName()
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == flowcontrolv1.NameAll || slices.Contains(u.GetGroups(), s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if s.ServiceAccount.Name == flowcontrolv1.NameAll {
			rest, ok := strings.CutPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix+s.ServiceAccount.Namespace)
			return ok && strings.HasPrefix(rest, serviceaccount.ServiceAccountUsernameSeparator)
		}
		return serviceaccount.MatchesUsername(s.ServiceAccount.Namespace, s.ServiceAccount.Name, u.GetName())
	}
	return false
}

func matchesResource(r *flowcontrolv1.ResourcePolicyRule, a *Request) bool {
	if !containsOrAll(r.Verbs, a.Verb) || !containsOrAll(r.APIGroups, a.Group) || !matchesName(r.Resources, a) {
		return false
	}
	if a.Namespace == "" {
		return r.ClusterScope
	}
	return containsOrAll(r.Namespaces, a.Namespace)
}

// matchesName reports whether a list has the resource of a request; with a subresource, as RESOURCE/SUBRESOURCE.
func matchesName(list []string, a *Request) bool {
	if a.Subresource == "" {
		return containsOrAll(list, a.Resource)
	}
	return slices.ContainsFunc(list, func(s string) bool {
		resource, sub, ok := strings.Cut(s, "/")
		return s == flowcontrolv1.ResourceAll || ok && resource == a.Resource && sub == a.Subresource
	})
}

// containsOrAll reports whether a list has a word, or the wildcard.
func containsOrAll(list []string, word string) bool {
	return slices.Contains(list, word) || len(list) == 1 && list[0] == "*"
}

func matchesPath(list []string, path string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		if s == flowcontrolv1.NonResourceAll || s == path {
			return true
		}
		below := strings.TrimSuffix(s, "*")
		if !strings.HasSuffix(below, "/") {
			below += "/"
		}
		return strings.HasPrefix(path, below)
	})
}

package fair

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
	by            flowcontrolv1.FlowDistinguisherMethodType // empty for one flow
	counters      *counters
}

func newSchema(config *flowcontrolv1.FlowSchema, l *level, c *counters) *schema {
	s := &schema{name: config.Name, uid: config.UID, levelUID: l.uid, level: l, rules: config.Spec.Rules, counters: c}
	if m := config.Spec.DistinguisherMethod; m != nil {
		s.by = m.Type
	}
	return s
}

// distinguish tells the flows of a schema apart.
func (s *schema) distinguish(a *Ask) string {
	switch s.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return a.User.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return a.Namespace
	}
	return ""
}

func (s *schema) matches(a *Ask) bool {
	for i := range s.rules {
		r := &s.rules[i]
		if !slices.ContainsFunc(r.Subjects, func(sub flowcontrolv1.Subject) bool { return is(a.User, &sub) }) {
			continue
		}
		if a.IsResource {
			if slices.ContainsFunc(r.ResourceRules, func(rr flowcontrolv1.ResourcePolicyRule) bool { return covers(&rr, a) }) {
				return true
			}
		} else if slices.ContainsFunc(r.NonResourceRules, func(nr flowcontrolv1.NonResourcePolicyRule) bool {
			return among(nr.Verbs, a.Verb) && onPath(nr.NonResourceURLs, a.Path)
		}) {
			return true
		}
	}
	return false
}

// is says that a user is, or belongs to, a subject.
func is(u user.Info, s *flowcontrolv1.Subject) bool {
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

func covers(r *flowcontrolv1.ResourcePolicyRule, a *Ask) bool {
	if !among(r.Verbs, a.Verb) || !among(r.APIGroups, a.Group) || !names(r.Resources, a) {
		return false
	}
	if a.Namespace == "" {
		return r.ClusterScope
	}
	return among(r.Namespaces, a.Namespace)
}

// names says that a list has the resource of a request; with a subresource that is RESOURCE/SUBRESOURCE.
func names(list []string, a *Ask) bool {
	if a.Subresource == "" {
		return among(list, a.Resource)
	}
	return slices.ContainsFunc(list, func(s string) bool {
		resource, sub, ok := strings.Cut(s, "/")
		return s == flowcontrolv1.ResourceAll || ok && resource == a.Resource && sub == a.Subresource
	})
}

// among says that a list has a word, or the one that stands for all.
func among(list []string, word string) bool {
	return slices.Contains(list, word) || len(list) == 1 && list[0] == "*"
}

func onPath(list []string, path string) bool {
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

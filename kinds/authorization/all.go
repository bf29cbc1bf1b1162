// Package authorization holds the kinds of the authorization.k8s.io group.
package authorization

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		LocalSubjectAccessReviews(),
		SelfSubjectAccessReviews(),
		SelfSubjectRulesReviews(),
		SubjectAccessReviews(),
	}
}

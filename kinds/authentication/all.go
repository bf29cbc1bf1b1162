// Package authentication holds the kinds of the authentication.k8s.io group.
package authentication

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		SelfSubjectReviews(),
		TokenReviews(),
	}
}

package server

import (
	"context"

	"proa.dev/server/authz"
)

// patient asks again before it refuses. Roles are read from caches, which may be a moment behind: who was just given a right
// may use it as soon as whoever gave it has an answer.
type patient struct {
	Authorizer
	roles *RBACView
}

// Authorize answers a question. A right that was just taken away may still be used for that moment.
func (p patient) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	decision, reason, err := p.Authorizer.Authorize(ctx, a)
	if decision != authz.NoOpinion || p.roles.Wait(ctx) != nil {
		return decision, reason, err
	}
	return p.Authorizer.Authorize(ctx, a)
}

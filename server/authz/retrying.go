package authz

import "context"

// Retrying waits for the caches of roles and asks again before it refuses. Roles are read from caches, which may be a moment
// behind: a user who was just given a right may use it as soon as the request that gave it has been answered.
type Retrying struct {
	Authorizer
	// Wait returns when the caches have what is stored now.
	Wait func(context.Context) error
}

// Authorize decides on a request. A right that was just taken away may still be used until the caches have seen it.
func (r Retrying) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	decision, reason, err := r.Authorizer.Authorize(ctx, a)
	if decision != NoOpinion || r.Wait(ctx) != nil {
		return decision, reason, err
	}
	return r.Authorizer.Authorize(ctx, a)
}

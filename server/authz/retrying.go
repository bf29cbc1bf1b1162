package authz

import (
	"context"
	"sync"
	"sync/atomic"
)

// Retrying waits for the caches of roles and asks again before it refuses. Roles are read from caches, which may be a moment
// behind: a user who was just given a right may use it as soon as the request that gave it has been answered.
type Retrying struct {
	Authorizer
	// Wait returns when the caches have what is stored now.
	Wait func(context.Context) error
}

// Authorize decides on a request. A right that was just taken away may still be used until the caches have seen it.
func (r Retrying) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	once, _ := ctx.Value(oneWaitKey{}).(*oneWait)
	wait := once == nil || !once.ended.Load()
	decision, reason, err := r.Authorizer.Authorize(ctx, a)
	if decision != NoOpinion || !wait {
		return decision, reason, err
	}
	if once.wait(ctx, r.Wait) != nil {
		return decision, reason, err
	}
	return r.Authorizer.Authorize(ctx, a)
}

// oneWait is the one time that the questions of a request wait for the caches.
type oneWait struct {
	once  sync.Once
	ended atomic.Bool
	err   error
}

type oneWaitKey struct{}

// WithOneWait returns a context for a request that asks about the rights of its user many times, as a list does that leaves out what the
// user may not get. The first question that would be refused waits for the caches, which costs reads of the store; after that the caches
// have every right that was given before the request, and further questions are answered from them at once.
func WithOneWait(ctx context.Context) context.Context {
	if ctx.Value(oneWaitKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, oneWaitKey{}, &oneWait{})
}

// wait calls f, and for all but the first caller returns what f has returned to the first one. Without a oneWait it calls f each time.
func (o *oneWait) wait(ctx context.Context, f func(context.Context) error) error {
	if o == nil {
		return f(ctx)
	}
	o.once.Do(func() {
		o.err = f(ctx)
		o.ended.Store(true)
	})
	return o.err
}

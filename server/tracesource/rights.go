package tracesource

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/trace"
)

// maxQuestions is how many questions about rights one request asks. An authorizer may be a webhook, which takes its time for each. What
// is not asked about counts as refused.
const maxQuestions = 1000

// reader is what the user of a request may get. It asks once for each object.
type reader struct {
	ctx     context.Context //nolint:containedctx // it lives as long as the request
	d       kind.Server
	answers map[trace.Ref]bool
}

// newReader returns what the user of a request may get. All questions together wait once for the caches of roles.
func newReader(ctx context.Context, d kind.Server) *reader {
	return &reader{ctx: authz.WithOneWait(ctx), d: d, answers: map[trace.Ref]bool{}}
}

func (r *reader) rights() trace.Reader {
	return trace.Reader{
		MayGet:     r.mayGet,
		MayGetNode: func(name string) bool { return r.mayGet(trace.Ref{Resource: "nodes", Name: name}) },
		MayGetAll:  func() bool { return r.ask(trace.Ref{Group: "*", Resource: "*"}) },
	}
}

// mayGet tells whether the user may get an object.
func (r *reader) mayGet(object trace.Ref) bool {
	all := object
	all.Name = ""
	return r.ask(all) || r.ask(object)
}

// ask asks for the right to get an object, or all of a namespace if it has no name.
func (r *reader) ask(object trace.Ref) bool {
	if answer, known := r.answers[object]; known {
		return answer
	}
	if len(r.answers) >= maxQuestions || r.ctx.Err() != nil {
		return false
	}
	where := object.Namespace
	if object.Resource == "namespaces" && object.Group == "" {
		where = object.Name // requests for a namespace are made in it
	}
	answer := r.d.ReviewAccess(r.ctx, kind.AccessReview(r.d.User(), &authorizationv1.ResourceAttributes{
		Verb: "get", Group: object.Group, Resource: object.Resource, Namespace: where, Name: object.Name,
	}))
	r.answers[object] = answer.Allowed
	return answer.Allowed
}

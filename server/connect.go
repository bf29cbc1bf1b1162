package server

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionchain"
	"proa.dev/server/apistatus"
)

// errNeedsConnection is the error for callers in this process that ask for a stream: they have no connection that could
// become one.
var errNeedsConnection = apistatus.BadRequest("a stream needs a connection of its own")

// Connect returns where a connection to a node or a Pod leads (exec, logs, proxy and the like), after hops 3, 4 and 6.
// rest is the path after the subresource, q the query. The target is nil when there is nothing to connect to and the
// answer is empty.
func (s *Server) Connect(ctx context.Context, r *Request, rest string, q url.Values) (*kind.Target, error) {
	if err := s.Authorize(ctx, r); err != nil {
		return nil, err
	}
	if !r.Sub.Serves(r.Verb) && (r.Verb != "" || !r.Sub.Serves("delete")) {
		return nil, apistatus.MethodNotAllowed()
	}
	r.Clock.Done(hop.Authorize)
	asked := &kind.Connection{Namespace: r.Namespace, Name: r.Name, Path: rest, Query: q, Split: s.SplitLogs}
	if r.Verb != "get" || r.Sub.Name != "log" { // reading a log is no CONNECT for admission
		if err := s.admitConnect(ctx, r, asked); err != nil {
			return nil, err
		}
	}
	if n := r.Sub.RequiredVerb; n != "" && n != r.Verb {
		if err := s.authorizeVerb(ctx, r, n); err != nil {
			return nil, err
		}
	}
	target, err := r.Sub.Connect(ctx, s.services(r), asked)
	if err == nil && target != nil && target.RequiredVerb != "" && target.RequiredVerb != r.Verb {
		err = s.authorizeVerb(ctx, r, target.RequiredVerb)
	}
	return target, err
}

// admitConnect is hops 4 and 6 of a connection. Plugins of hop 4 may replace its options, which are then set in asked.
func (s *Server) admitConnect(ctx context.Context, r *Request, asked *kind.Connection) error {
	a := s.admission(r, nil, nil)
	a.Verb, a.Options = "connect", nil
	var options runtime.Object
	if r.Sub.Body != nil && r.Sub.Body.Options != nil {
		options = r.Sub.Body.Options(asked)
		a.Connect = options
	}
	if err := admissionchain.Mutate(ctx, s.Mutate, a); err != nil {
		return err
	}
	a.Reinvocation = nil
	if err := admissionchain.Admit(ctx, hop.Validate, s.Check, a); err != nil {
		return err
	}
	if a.Connect != options && r.Sub.Body.Choose != nil {
		r.Sub.Body.Choose(asked, a.Connect)
	}
	return nil
}

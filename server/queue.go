package server

import (
	"context"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/fairqueue"
	"proa.dev/server/requestflow"
)

// enterQueue waits until the request has its seats among those that are served at the same time.
func (s *Server) enterQueue(ctx context.Context, r *Request) (leave func(), err error) {
	if r.Flow == nil {
		a := fairqueue.Request{User: r.User, Verb: r.Verb, IsResource: true, Group: r.Def.Group, Resource: r.Def.Plural,
			Namespace: r.Namespace}
		if r.Sub != nil {
			a.Subresource = r.Sub.Name
		}
		if r.Def.Resource() == gr.Namespaces {
			a.Namespace = r.Name
		}
		flow := s.queue.Classify(&a)
		r.Flow = &flow
	}
	leave, err = requestflow.Enter(ctx, r.Flow, s.seatsOf(r))
	r.Clock.WaitedSinceDone(hop.Authorize)
	return leave, err
}

// seatsOf returns how many seats a request takes: a list of many objects takes more than one.
func (s *Server) seatsOf(r *Request) int {
	const objectsPerSeat, maxSeats = 100, 10
	l := &r.Options.List
	first := r.Verb == "watch" && (l.ResourceVersion == "" || l.ResourceVersion == "0" || l.Initial != nil && *l.Initial)
	if r.Verb != "list" && !first || l.ExactField("metadata.name") != "" {
		return 1
	}
	n := s.State.Cache(r.Def).Len()
	if r.Verb == "list" && l.Limit > 0 {
		n = int(min(l.Limit, int64(n)))
	}
	return min(maxSeats, 1+n/objectsPerSeat)
}

// Classify finds the flow that a request belongs to by the FlowSchemas of the cluster.
func (s *Server) Classify(a *fairqueue.Request) fairqueue.Flow { return s.queue.Classify(a) }

package server

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
)

// recordWrite keeps the record of a write that has been committed: what was written, by whom, and how long each hop
// took. A write that changed nothing is not recorded, because there is no revision of its own.
func (s *Server) recordWrite(r *Request, obj kind.Object, rev int64, code int) {
	if r.Options.DryRun {
		return
	}
	rec := &r.Clock.Record
	rec.UID, rec.Rev = obj.GetUID(), rev // the caller's write set needs the revision also when nothing is recorded
	if s.Recorder == nil || r.unchanged {
		return
	}
	r.nameRecord(obj.GetNamespace(), obj.GetName())
	rec.Code, rec.Refused, rec.Error = code, 0, ""
	ready := r.Def.Storage().Ready
	rec.Ready = ready != nil && ready(obj)
	s.Recorder.Add(*rec)
}

// nameRecord sets what the record says of the request and its object.
func (r *Request) nameRecord(namespace, name string) {
	rec := &r.Clock.Record
	rec.Verb, rec.Group, rec.Resource, rec.User = r.Verb, r.Def.Group, r.Def.Plural, r.User.GetName()
	if r.Sub != nil {
		rec.Subresource = r.Sub.Name
	}
	// The names may be parts of a long URL, which the record must not keep in memory. One string has both.
	both := namespace + "/" + name
	rec.Namespace, rec.Name = both[:len(namespace)], both[len(namespace)+1:]
}

// RecordRefusal keeps the record of a write that was refused, with the hop that has refused it: the one that has called
// Refuse on the clock, or else the one that errors of this sort come from. Reads and dry runs are not recorded, and neither
// are requests whose client has gone.
func (s *Server) RecordRefusal(r *Request, err error) {
	rec := &r.Clock.Record
	if s.Recorder == nil || !hop.IsWriteVerb(r.Verb) || r.Options.DryRun || r.Def.Transient || r.User == nil || errors.Is(err, context.Canceled) {
		return
	}
	if rec.Refused == 0 {
		r.Clock.Refuse(refusingHop(err))
	}
	name := r.Name
	if name == "" {
		name = rec.Name // that of the object in the body
	}
	r.nameRecord(r.Namespace, name)
	st := apistatus.Of(err)
	refusal := *rec
	refusal.Rev, refusal.Code, refusal.Error = 0, int(st.Code), hop.Printable(withoutBody(st.Message, r.Body), hop.MaxText)
	if sub := rec.Subresource; r.Def.HoldsSecrets(sub) || refusal.Error == "" {
		refusal.Error = string(st.Reason) // the message may quote the object
	}
	s.Recorder.Add(refusal)
}

// withoutBody returns a message up to where it begins to quote the body of the request. A body that is no object may be
// anything, for example a Secret that was sent to the wrong path.
func withoutBody(message string, body []byte) string {
	const enough = 16
	if len(body) == 0 {
		return message
	}
	message, _, _ = strings.Cut(message, string(body[:min(len(body), enough)]))
	return message
}

// refusingHop returns the hop from which an error comes when no hop has said that it refuses the request: the store knows
// which objects exist and at which revision, and everything else is about the body.
func refusingHop(err error) hop.Hop {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return hop.Commit
	}
	return hop.Schema
}

// beginWork waits for processor time, at hop 5.
func (r *Request) beginWork(ctx context.Context) error {
	if r.Work == nil {
		return nil
	}
	before := r.Work.Waited
	err := r.Work.Begin(ctx)
	r.Clock.Waited(hop.Schema, r.Work.Waited-before)
	return err
}

// clock returns the clock for admission plugins; nil when nothing is recorded.
func (s *Server) clock(r *Request) *hop.Clock {
	if s.Recorder == nil {
		return nil
	}
	return &r.Clock
}

// admit calls the plugins of a hop in order until one refuses. Plugins that take long are steps of the record, and so is the
// one that refuses, unless they have added steps of their own.
func admit(ctx context.Context, h hop.Hop, plugins []Plugin, a *Admission) error {
	detailed := a.Clock != nil && a.Clock.Detailed
	begin := time.Duration(0)
	if detailed {
		begin = a.Clock.Elapsed()
	}
	for _, p := range plugins {
		steps := a.Clock.Steps()
		err := p.Admit(ctx, a)
		end := begin
		if detailed || err != nil {
			end = a.Clock.Elapsed()
		}
		if !detailed {
			begin = end // how long it took is not known
		}
		if (end-begin >= hop.ShortestStep || err != nil) && a.Clock.Steps() == steps {
			step := hop.Step{Hop: h, Name: p.Name, After: begin, Took: end - begin}
			if err != nil {
				step.Failed, step.Detail = true, "denied"
			}
			a.Clock.AddStep(step)
		}
		if err != nil {
			return err
		}
		begin = end
	}
	return nil
}

// continueClock gives a write that is made on behalf of another request the clock of that request: of the same object, with
// the hops that it has passed, and of another one, with its cause and client only.
func (r *Request) continueClock(outer *Request) {
	if outer == nil || !outer.Clock.IsRunning() {
		return
	}
	r.Clock = outer.Clock
	if outer.Sub != nil && outer.Def.Resource() == r.Def.Resource() && outer.Namespace == r.Namespace && outer.Name == r.Name {
		r.Verb, r.Sub = outer.Verb, outer.Sub
		return
	}
	r.Clock.Restart(time.Now())
}

package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/refusal"
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
	rec.Ready = ready != nil && obj.GetDeletionTimestamp() == nil && !rec.Removed && ready(obj)
	s.Recorder.Add(*rec)
	if r.actionOf != nil {
		r = r.actionOf
	}
	r.RecordedUID, r.RecordedRev = obj.GetUID(), rev
}

// nameRecord sets what the record says of the request and its object.
func (r *Request) nameRecord(namespace, name string) {
	rec := &r.Clock.Record
	rec.Verb, rec.Group, rec.Resource, rec.User = r.Verb, r.Def.Group, r.Def.Plural, r.User.GetName()
	if r.Sub != nil {
		rec.Subresource = r.Sub.Name
	}
	rec.SetNames(namespace, name)
}

// RecordRefusal keeps the record of a write that was refused, with the hop that has refused it: the one that has called
// Refuse on the clock, or else the one that errors of this sort come from, as for a store that does not answer. Reads and dry
// runs are not recorded, and neither are requests whose client has gone. A request that has run out of its own time tells nothing about
// the store.
func (s *Server) RecordRefusal(ctx context.Context, r *Request, err error) {
	rec := &r.Clock.Record
	if s.Recorder == nil || !hop.IsWriteVerb(r.Verb) || r.Options.DryRun || r.Def.Transient || r.User == nil ||
		errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	isUnavailable := apistatus.IsStoreUnavailable(err)
	if rec.Refused == 0 || isUnavailable && ctx.Err() == nil {
		r.Clock.Refuse(refusal.Hop(err))
	}
	r.nameRecord(r.Namespace, r.refusedName())
	refused := *rec
	refused.Rev, refused.Code = 0, int(apistatus.Of(err).Code)
	refused.Error = refusal.Text(err, r.Body, r.Def.HoldsSecrets(rec.Subresource))
	if isUnavailable && ctx.Err() != nil {
		refused.Error = "the timeout of the request was over before the store had answered"
	}
	s.Recorder.Add(refused)
}

// refusedName returns the name of the object of a refused request. A new object has it in the body, which was not decoded if the request
// was refused before hop 5, or could not be.
func (r *Request) refusedName() string {
	name := cmp.Or(r.Name, r.Clock.Record.Name)
	switch {
	case name != "" || r.Verb != "create":
		return name
	case r.Object != nil:
		return r.Object.GetName()
	}
	return refusal.ObjectName(r.Body, r.Media)
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

// continueClock gives a write that is made on behalf of another request the clock of that request: of the same object, with
// the hops that it has passed, and of another one, with its cause and client only.
func (r *Request) continueClock(outer *Request) {
	if outer == nil || !outer.Clock.IsRunning() {
		return
	}
	r.Clock = outer.Clock
	if outer.Sub != nil && outer.Def.Resource() == r.Def.Resource() && outer.Namespace == r.Namespace && outer.Name == r.Name {
		r.Verb, r.Sub, r.actionOf = outer.Verb, outer.Sub, outer
		return
	}
	r.Clock.Restart(time.Now())
}

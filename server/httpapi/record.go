package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/encode"
)

// beginClock starts the clock of a write, which is authenticated by now, and notes who sent it.
func (s *Handler) beginClock(r *server.Request, req *http.Request, by *requester, auditID string) {
	if s.Server.Recorder == nil || !hop.IsWriteVerb(r.Verb) {
		return
	}
	r.Clock.Begin(by.start)
	r.Clock.Detailed = s.Server.Recorder.Detail(by.start, r.User.GetName())
	r.Clock.Done(hop.Authenticate)
	r.Clock.Record.Origin = originOf(req, auditID)
	r.Clock.Record.Origin.TraceParent, r.Clock.Record.Origin.Began = traceParentOf(req, r.User), by.sessionBegan
}

// sessionHeader is the header of kubectl that is the same in all requests of one command.
const sessionHeader = "Kubectl-Session"

// sessionBegan returns when the first request of the command arrived that a request is part of; zero when it is not known.
func (s *Handler) sessionBegan(req *http.Request, user string, arrived time.Time) time.Time {
	if session := req.Header[sessionHeader]; s.Server.Recorder != nil && len(session) > 0 && session[0] != "" {
		return s.sessions.Request(user, session[0], arrived)
	}
	return time.Time{}
}

// originOf returns what a client says of itself. Nothing of it is checked, so it is bounded and made printable.
func originOf(req *http.Request, auditID string) *hop.Origin {
	first := func(name string) string { // name in its canonical form
		if v := req.Header[name]; len(v) > 0 {
			return hop.Printable(v[0], hop.MaxText)
		}
		return ""
	}
	return &hop.Origin{Agent: first("User-Agent"), AuditID: hop.Printable(auditID, hop.MaxText), Session: first(sessionHeader),
		Command: first("Kubectl-Command")}
}

// bodyRead ends hop 2 when the body of a request has been read, with the time that the client took to send it as waiting.
func bodyRead(r *server.Request) {
	before := r.Clock.Record.Took[hop.Authenticate]
	r.Clock.Done(hop.Authenticate)
	took := r.Clock.Record.Took[hop.Authenticate] - before
	if took >= hop.ShortestWait {
		r.Clock.Waited(hop.Authenticate, took)
	}
	if took >= hop.ShortestStep {
		r.Clock.AddStep(hop.Step{Hop: hop.Authenticate, Name: "body", After: before, Took: took, Wait: took,
			Detail: strconv.Itoa(len(r.Body)) + " bytes"})
	}
}

// recordUnauthenticated keeps the record of a write whose client could not be authenticated. All of them count as those of
// one user without a name, so that they push out nobody else's.
func (s *Handler) recordUnauthenticated(w http.ResponseWriter, req *http.Request, rt *route, start time.Time, err error) {
	if s.Server.Recorder == nil || !hop.IsWriteVerb(rt.verb) {
		return
	}
	def := s.Server.State.Served(rt.gvr)
	if def == nil {
		return
	}
	st := apistatus.Of(err)
	rec := hop.Record{Verb: rt.verb, Start: start, Code: int(st.Code), Refused: hop.Authenticate, Error: st.Message}
	rec.Group, rec.Resource, rec.Origin = def.Group, def.Plural, originOf(req, w.Header().Get("Audit-Id"))
	if sub := def.Sub(rt.sub); sub != nil {
		rec.Subresource = sub.Name
	}
	namespace, name := rt.namespace, rt.name
	if def.Scope == kind.Cluster {
		namespace = ""
	}
	if rt.verb == "create" && name == "" {
		name = s.unread.ObjectName(w, req)
	}
	rec.SetNames(namespace, name)
	rec.Took[hop.Authenticate] = time.Since(start)
	s.Server.Recorder.Add(rec)
}

// recordUnread keeps the record of a write whose body or query could not be read, or whose user may not make it.
func (s *Handler) recordUnread(ctx context.Context, r *server.Request, err error) {
	refused := hop.Schema
	if apierrors.IsForbidden(err) {
		refused = hop.Authorize
	}
	r.Clock.Refuse(refused)
	s.Server.RecordRefusal(ctx, r, err)
}

// keptBodies is the copy of the bodies of a write that is kept beside its record.
type keptBodies struct {
	recorder *hop.Recorder
	uid      types.UID
	rev      int64
	wire     *hop.Wire
}

// keepRequestBody copies the body of a write that was committed; nil for requests whose bodies are not kept. Every body that
// never became an object is left out too.
func (s *Handler) keepRequestBody(req *http.Request, r *server.Request, res *server.Response) *keptBodies {
	if res == nil || res.Object == nil || r.RecordedUID == "" || !encode.KeepsBodies(s.Server.Recorder, r) {
		return nil
	}
	w := &hop.Wire{RequestType: hop.Printable(req.Header.Get("Content-Type"), hop.MaxText)}
	w.SetRequest(r.Body)
	return &keptBodies{s.Server.Recorder, r.RecordedUID, r.RecordedRev, w}
}

// keepAnswer adds the body of the answer and stores both.
func (k *keptBodies) keepAnswer(body []byte, contentType string) {
	if k == nil {
		return
	}
	k.wire.ResponseType = contentType
	k.wire.SetResponse(body)
	k.recorder.SetWire(k.uid, k.rev, k.wire)
}

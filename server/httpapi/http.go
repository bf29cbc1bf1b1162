package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/deadline"
	"proa.dev/server/encode"
	"proa.dev/server/fairqueue"
	"proa.dev/server/negotiate"
	"proa.dev/server/requestflow"
	"proa.dev/server/responsewriter"
)

// ServeHTTP authenticates a request, impersonates another user if asked to, opens its audit record, classifies it,
// leases memory for its answer, and then serves a resource or another path.
func (s *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	start := time.Now()
	growStack()
	rt := routeOf(req.Method, req.URL.Path)
	if rt.verb == "list" && queryBool(req.URL.Query(), "watch") {
		rt.verb = "watch"
	}
	out := &responsewriter.Writer{ResponseWriter: w, Socket: responsewriter.SocketOf(req), User: user.Anonymous, Streaming: rt.resource &&
		isLongRunning(rt.sub)}
	inflight := s.inFlightCounter(&rt)
	inflight.Add(1)
	defer func() {
		inflight.Add(-1)
		abort := s.recoverPanic(recover(), out, req)
		out.Finish()
		out.Audit.ResponseComplete(out.Code)
		if s.Observe != nil {
			o := s.observation(req, rt)
			o.Code, o.Bytes, o.Took, o.Terminated = out.Code, out.Bytes, time.Since(start), out.Terminated
			s.Observe(o)
		}
		if abort {
			panic(http.ErrAbortHandler)
		}
	}()
	if s.NoCompression {
		req.Header.Del("Accept-Encoding")
	}
	head := w.Header()
	id := auditID(req)
	head.Set("Audit-Id", id)
	head.Set("Cache-Control", "no-cache, private")
	ctx := req.Context() //nolint:contextcheck // one with a deadline is derived from it
	if !rt.isLongRunning(req.URL.Path) {
		timeout, err := timeoutOf(req)
		if err != nil {
			out.Audit = s.beginAudit(req, &rt, nil, id, start)
			s.writeError(out, req, err)
			return
		}
		limited := deadline.With(ctx, start.Add(timeout))
		defer limited.Cancel()
		ctx = limited
	}
	who, err := s.Authn.Request(req)
	if err != nil {
		s.Server.Log.Debug("not authenticated", "path", req.URL.Path, "err", err)
		out.Audit = s.beginAudit(req, &rt, nil, id, start)
		err = authenticationError(err)
		s.recordUnauthenticated(out, req, &rt, start, err)
		s.writeError(out, req, err)
		return
	}
	responsewriter.MarkAuthenticated(w, req, who)
	out.User = who.GetName()
	if out.Audit = s.beginAudit(req, &rt, who, id, start); out.Audit.Failed() {
		out.Audit = nil
		http.Error(out, fmt.Sprintf("Internal Server Error: %q: %v", req.RequestURI, server.ErrAuditFailed), http.StatusInternalServerError)
		return
	}
	impersonating := req.Header.Get(authenticationv1.ImpersonateUserHeader) != ""
	if who, err = s.impersonate(req, who); err != nil {
		s.writeError(out, req, err)
		return
	}
	if impersonating {
		out.Audit.SetImpersonatedUser(who)
	}
	by := &requester{who, s.flowOf(&rt, req.URL.Path, who), start, s.sessionBegan(req, who.GetName(), start)}
	setFlowHeaders(head, &by.flow)
	if !out.Streaming {
		if err := s.leaseAnswer(ctx, out, &rt, by); err != nil {
			s.writeError(out, req, err)
			return
		}
	}
	out.Seat.Flow = &by.flow
	if by.flow.Level != flowcontrolv1.PriorityLevelConfigurationNameExempt {
		out.Work = s.processors.For(who.GetName())
	}
	if rt.resource {
		s.serveResource(ctx, out, req, rt, by)
		return
	}
	leave, err := requestflow.Enter(ctx, &by.flow, 1)
	if err != nil {
		s.writeError(out, req, err)
		return
	}
	out.Seat.Take(leave)
	out.Hold()
	s.servePath(out, req, who)
	out.Seat.Free()
	out.SendHeld()
}

// recoverPanic answers a request that has panicked. It returns true when the connection or stream must be aborted, so
// that the client sees that the answer is incomplete.
func (s *Handler) recoverPanic(p any, out *responsewriter.Writer, req *http.Request) (abort bool) {
	if p == nil {
		return out.SendError != nil
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}
	s.Server.Log.Error("a request panicked", "path", req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	out.Audit.Panicked(p)
	out.Audit = nil
	out.DiscardHeld()
	if out.Code == 0 {
		s.writeError(out, req,
			apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
		return out.SendError != nil
	}
	return true
}

// requester is the user of a request, with the flow of the request, the time it arrived, and the time when the command of kubectl began
// that it is part of.
type requester struct {
	user.Info
	flow                fairqueue.Flow
	start, sessionBegan time.Time
}

// serveResource finds the resource of a request and serves it: by an aggregated API server, as a connection to a node
// or Pod, or by the pipeline.
func (s *Handler) serveResource(ctx context.Context, w *responsewriter.Writer, req *http.Request, rt route, by *requester) {
	if s.isAggregated(rt.gvr.GroupVersion()) {
		s.serveAggregated(ctx, w, req, rt, by)
		return
	}
	who := by.Info
	def := s.Server.State.Find(rt.gvr)
	if def == nil || (def.Scope == kind.Cluster && rt.namespace != "" && rt.gvr.Resource != "namespaces") {
		s.notServed(w, req, rt, who)
		return
	}
	r := &server.Request{
		Verb: rt.verb, Def: def, Namespace: rt.namespace, Name: rt.name, User: who, Agent: req.UserAgent(), Remote: remoteAddress(req),
		Audit: w.Audit, Flow: &by.flow, Work: &w.Work, KeepSeat: w.Seat.Take, AnswerMemory: &w.Memory,
	}
	s.beginClock(r, req, by, w.Header().Get("Audit-Id"))
	if def.Scope == kind.Cluster {
		r.Namespace = ""
		if def.Plural == "namespaces" {
			r.Name = rt.namespace
			if rt.name != "" && r.Name == "" {
				r.Name = rt.name
			}
		}
	}
	if rt.sub != "" {
		if r.Sub = def.Sub(rt.sub); r.Sub == nil || (rt.rest != "" && r.Sub.Connect == nil) {
			s.notServed(w, req, rt, who)
			return
		}
	}
	if !rt.hasValidNames() {
		s.writeError(w, req, apistatus.BadRequest("the name in the path is not valid: it must not contain '/', '%%', '.', '..' or control characters"))
		return
	}
	if def.Scope == kind.Namespaced && rt.namespace == "" && rt.name != "" {
		s.notServed(w, req, rt, who)
		return
	}
	if r.Sub != nil && r.Sub.Connect != nil && r.Name != "" {
		w.StartStreaming()
		r.KeepSeat = nil
		s.serveStream(w, req, r, rt.rest)
		return
	}
	if !rt.allowsVerb(def) {
		err := s.Server.Authorize(req.Context(), r)
		if err == nil {
			err = apistatus.MethodNotAllowed()
		}
		s.writeError(w, req, err)
		return
	}
	s.serveRequest(ctx, w, req, r)
}

// remoteAddress returns the address of the client's end of the connection. Headers such as X-Forwarded-For do not
// count: anybody can send them. When the address is not known, it returns the unspecified one, because the zero value
// stands for a caller in this process.
func remoteAddress(req *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return at.Addr().Unmap().WithZone("")
}

// serveRequest negotiates the format of the answer, reads the query and the body, takes the request through the
// pipeline and writes the answer.
func (s *Handler) serveRequest(ctx context.Context, w *responsewriter.Writer, req *http.Request, r *server.Request) {
	defer releaseBody(w, r)
	f, err := negotiate.Format(req, !r.Def.Transient, r.Verb == "watch", r.IsJSONOnly())
	if err == nil {
		err = negotiate.CheckShape(f, r)
	}
	if err == nil {
		f.Include = metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
		f.Group, f.Version = r.Def.Group, r.Def.Version
		r.ProtobufOnly = f.Media == codec.Proto && f.Shape == encode.Whole && w.Audit == nil
		if f.Shape == encode.Table {
			err = negotiate.CheckInclude(f.Include)
		}
	}
	if err == nil {
		err = s.readRequest(ctx, w, req, r)
		bodyRead(r)
	}
	if err != nil {
		if r.Def.Deprecated != "" && !negotiate.IsMediaTypeError(r, err) {
			r.Warn(r.Def.Deprecated)
		}
		writeWarnings(w, r)
		// A client that may not make the request does not learn what is wrong with it.
		if aerr := s.Server.Authorize(req.Context(), r); aerr != nil {
			err = aerr
		}
		s.recordUnread(ctx, r, err)
		s.writeError(w, req, err)
		return
	}
	res, err := s.Server.Serve(ctx, r)
	bodies := s.keepRequestBody(req, r, res)
	releaseBody(w, r)
	writeWarnings(w, r)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	f.ForNodes = r.ForNodes()
	e := &encode.Encoder{Codec: s.Server.State.Codec, Def: r.Def, Format: f, Cache: s.encodings}
	if res.Watch != nil {
		events := &eventWriter{Stream: res.Watch, encoder: e, header: true,
			watch: s.deliveries.Watch(s.Server.Recorder, r.Def.Resource(), r.User.GetName(), res.Watch.Rev)}
		if s.Watching != nil {
			sent, ended := s.Watching(s.observation(req, routeOf(req.Method, req.URL.Path)))
			defer ended()
			events.onSent = sent
		}
		s.stream(w, req, events)
		return
	}
	s.writeAnswer(w, req, res, e, bodies)
}

// writeWarnings adds the warnings of a request to the header of its answer, each once, up to 4 KiB.
func writeWarnings(w http.ResponseWriter, r *server.Request) {
	const maxSize = 4096
	size := 0
	written := map[string]bool{}
	for _, text := range r.Warnings {
		if written[text] {
			continue
		}
		written[text] = true
		if h, err := utilnet.NewWarningHeader(299, "-", text); err == nil && size+len(h) <= maxSize {
			size += len(h)
			w.Header().Add("Warning", h)
		}
	}
}

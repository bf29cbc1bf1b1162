package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/server/fair"
)

// maxBody bounds a request body.
const maxBody = 3 << 20

// ServeHTTP is the adapter between HTTP and the pipeline: bytes become a Request, a Response becomes bytes.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	start := time.Now()
	roomy(false)
	rt := routeOf(req.Method, req.URL.Path)
	if rt.verb == "list" && truth(req.URL.Query(), "watch") {
		rt.verb = "watch"
	}
	out := &recorder{ResponseWriter: w, socket: socketOf(req), user: user.Anonymous, lasting: rt.resource && lasts(rt.sub)}
	inflight := s.inflight(&rt)
	inflight.Add(1)
	defer func() {
		inflight.Add(-1)
		abort := s.recovered(recover(), out, req)
		out.finish()
		out.trail.Done(out.code)
		if s.Observe != nil {
			o := s.observation(req, rt)
			o.Code, o.Bytes, o.Took = out.code, out.bytes, time.Since(start)
			s.Observe(o)
		}
		if abort {
			panic(http.ErrAbortHandler)
		}
	}()
	if s.Plain {
		req.Header.Del("Accept-Encoding")
	}
	head := w.Header()
	id := auditID(req)
	head.Set("Audit-Id", id)
	head.Set("Cache-Control", "no-cache, private")
	ctx := req.Context() //nolint:contextcheck // a bounded one is made from it
	if !rt.lasts(req.URL.Path) {
		timeout, err := timeoutOf(req)
		if err != nil {
			out.trail = s.trail(req, &rt, nil, id, start)
			s.fail(out, req, err)
			return
		}
		l := limit(ctx, start.Add(timeout))
		defer l.end()
		ctx = l
	}
	who, err := s.Authn.Request(req)
	if err != nil {
		s.Log.Debug("not authenticated", "path", req.URL.Path, "err", err)
		out.trail = s.trail(req, &rt, nil, id, start)
		s.fail(out, req, unauthenticated(err))
		return
	}
	markAuthenticated(w, who)
	out.user = who.GetName()
	if out.trail = s.trail(req, &rt, who, id, start); out.trail.Untold() {
		out.trail = nil
		http.Error(out, fmt.Sprintf("Internal Server Error: %q: %v", req.RequestURI, errUntold), http.StatusInternalServerError)
		return
	}
	impersonating := req.Header.Get(authenticationv1.ImpersonateUserHeader) != ""
	if who, err = s.impersonate(req, who); err != nil { //nolint:contextcheck // it takes that of the request
		s.fail(out, req, err)
		return
	}
	if impersonating {
		out.trail.Impersonated(who)
	}
	by := &asker{who, s.queue.ofHTTP(&rt, req.URL.Path, who), start}
	tell(head, &by.flow)
	if !out.lasting {
		if err := s.admit(ctx, out, &rt, by); err != nil {
			s.fail(out, req, err)
			return
		}
	}
	out.seat.flow = &by.flow
	if by.flow.Level != flowcontrolv1.PriorityLevelConfigurationNameExempt {
		out.work = s.processors.For(who.GetName())
	}
	if rt.resource {
		s.serveResource(ctx, out, req, rt, by)
		return
	}
	leave, err := seated(by.flow.Enter(ctx, 1))
	if err != nil {
		s.fail(out, req, err)
		return
	}
	out.seat.take(leave)
	out.hold()
	s.servePath(out, req, who)
	out.seat.free()
	out.send()
}

// recovered answers a request that has panicked, and says whether the answer must be seen to be incomplete: the handler aborted
// it, or it could not be sent as a whole.
func (s *Server) recovered(p any, out *recorder, req *http.Request) (abort bool) {
	if p == nil {
		return out.broken != nil
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}
	s.Log.Error("a request failed unexpectedly", "path", req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	out.trail.Panicked(p)
	out.trail = nil
	out.forget()
	if out.code == 0 {
		s.fail(out, req, apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
		return out.broken != nil
	}
	return true
}

// asker is whose request it is, where it belongs, and when it came.
type asker struct {
	user.Info
	flow  fair.Flow
	start time.Time
}

// Observation is what a metrics collector is told about a request.
type Observation struct {
	Verb, Group, Version, Resource, Sub string
	Scope                               string // resource, namespace, cluster; empty when it is not for a resource
	DryRun                              bool
	Code                                int
	Bytes                               int64
	Took                                time.Duration
}

// observation describes a request in a bounded number of words: what is not served has no name, or every stranger could
// make the metrics grow.
func (s *Server) observation(req *http.Request, rt route) Observation {
	o := Observation{Verb: rt.verb}
	def := s.State.defs.Load().byVersion[rt.gvr]
	if def != nil {
		o.Group, o.Version, o.Resource = rt.gvr.Group, rt.gvr.Version, rt.gvr.Resource
		if def.Sub(rt.sub) != nil {
			o.Sub = rt.sub
		}
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		o.Verb = "other"
	}
	switch {
	case def == nil:
	case rt.name != "":
		o.Scope = "resource"
	case rt.namespace != "":
		o.Scope = "namespace"
	default:
		o.Scope = "cluster"
	}
	if o.Verb == "patch" && strings.HasPrefix(req.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) {
		o.Verb = "apply"
	}
	o.DryRun = strings.Contains(req.URL.RawQuery, "dryRun=")
	return o
}

// inflight counts the requests that are being served and are like this one: they read, they write, or they last.
func (s *Server) inflight(rt *route) *atomic.Int64 {
	switch {
	case rt.verb == "watch" || lasts(rt.sub):
		return &s.lasting
	case rt.verb == "get" || rt.verb == "list":
		return &s.reading
	}
	return &s.writing
}

// InFlight is how many requests that read, and that write, are being served; those that last are not among them.
func (s *Server) InFlight() (reading, writing int64) { return s.reading.Load(), s.writing.Load() }

// serveResource serves a request for a resource.
func (s *Server) serveResource(ctx context.Context, w *recorder, req *http.Request, rt route, by *asker) {
	if s.servedElsewhere(rt.gvr.GroupVersion()) {
		s.serveElsewhere(ctx, w, req, rt, by)
		return
	}
	who := by.Info
	def := s.State.find(rt.gvr)
	if def == nil || (def.Scope == kind.Cluster && rt.namespace != "" && rt.gvr.Resource != "namespaces") {
		s.lost(w, req, rt, who)
		return
	}
	r := &Request{
		Verb: rt.verb, Def: def, Namespace: rt.namespace, Name: rt.name, User: who, Agent: req.UserAgent(), Remote: peer(req),
		trail: w.trail, flow: &by.flow, work: &w.work, seat: &w.seat, answer: &w.lease, noWatchList: s.NoWatchList,
	}
	r.Clock.Begin(by.start)
	r.Clock.Done(hop.Authenticate)
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
			s.lost(w, req, rt, who)
			return
		}
	}
	if !rt.sound() {
		s.fail(w, req, badRequest("the name in the path is not valid: it must not contain '/', '%%', '.', '..' or control characters"))
		return
	}
	if def.Scope == kind.Namespaced && rt.namespace == "" && rt.name != "" {
		s.lost(w, req, rt, who)
		return
	}
	if r.Sub != nil && r.Sub.Connect != nil && r.Name != "" {
		w.last()
		r.seat = nil
		s.serveStream(w, req, r, rt.rest)
		return
	}
	if !rt.fits(def) {
		err := s.authorize(req.Context(), r)
		if err == nil {
			err = methodNotAllowed()
		}
		s.fail(w, req, err)
		return
	}
	s.answerHTTP(ctx, w, req, r)
}

// peer returns the address of the other end of the connection. Headers such as X-Forwarded-For do not count: anybody can send them.
// Where the other end is not known, the answer is the unspecified address, which is nobody's: the zero value would say that the
// request comes from this process.
func peer(req *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return at.Addr().Unmap().WithZone("")
}

// lost answers a request for something that is not served. Who may not ask does not learn that.
func (s *Server) lost(w *recorder, req *http.Request, rt route, who user.Info) {
	a := authz.Attributes{
		User: who, Verb: rt.verb, Namespace: rt.namespace, IsResource: true,
		Group: rt.gvr.Group, Version: rt.gvr.Version, Resource: rt.gvr.Resource, Subresource: rt.sub, Name: rt.name,
	}
	if err := s.allowed(req.Context(), &a, w.trail); err != nil {
		s.fail(w, req, err)
		return
	}
	if rt.gvr.Group != "" && s.group(s.State.defs.Load().all, rt.gvr.Group) == nil {
		s.Paths.ServeHTTP(w, req) // the router of resources knows nothing of it
		return
	}
	s.fail(w, req, noSuchResource())
}

// answerHTTP reads the rest of a request, runs it and writes the answer.
func (s *Server) answerHTTP(ctx context.Context, w *recorder, req *http.Request, r *Request) {
	defer r.release()
	f, err := negotiate(req, !r.Def.Asked, r.Verb == "watch", r.hasNoProto())
	if err == nil {
		err = f.suits(r)
	}
	if err == nil {
		f.include = metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
		f.group, f.version = r.Def.Group, r.Def.Version
		r.compact = f.media == codec.Proto && f.shape == whole && w.trail == nil
		if f.shape == tabular {
			err = checkInclude(f.include)
		}
	}
	if err == nil {
		err = s.readRequest(ctx, w, req, r)
	}
	if err != nil {
		if r.Def.Deprecated != "" && !unroutable(r, err) {
			r.Warn(r.Def.Deprecated)
		}
		warnings(w, r)
		// Whether the client may ask at all comes before what is wrong with the question.
		if aerr := s.authorize(req.Context(), r); aerr != nil {
			err = aerr
		}
		s.fail(w, req, err)
		return
	}
	res, err := s.Serve(ctx, r)
	r.release()
	warnings(w, r)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	f.forNodes = r.forNodes()
	e := &encoder{codec: s.State.Codec, def: r.Def, f: f, kept: s.encodings}
	if res.Watch != nil {
		if s.Watching != nil {
			sent, ended := s.Watching(s.observation(req, routeOf(req.Method, req.URL.Path)))
			defer ended()
			res.Watch.sent = sent
		}
		s.stream(w, req, res.Watch, e)
		return
	}
	s.writeAnswer(w, req, res, e)
}

func warnings(w http.ResponseWriter, r *Request) {
	const most = 4096
	size := 0
	seen := map[string]bool{}
	for _, text := range r.warnings {
		if seen[text] {
			continue
		}
		seen[text] = true
		if h, err := utilnet.NewWarningHeader(299, "-", text); err == nil && size+len(h) <= most {
			size += len(h)
			w.Header().Add("Warning", h)
		}
	}
}

// send writes an answer, compressed when it is large and the client can read that.
func send(w http.ResponseWriter, req *http.Request, code int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if len(body) < piece || !acceptsGzip(req) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(code)
		_, _ = w.Write(body) // a client that left does not need to be told
		return
	}
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(w)
	_, _ = z.Write(body)
	_ = z.Close()
}

// zippers are reused: a new one costs more than most answers.
var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is a valid one
	return z
}}

// fail writes the Status of an error.
func (s *Server) fail(w http.ResponseWriter, req *http.Request, err error) {
	if errors.Is(err, context.Canceled) && req.Context().Err() != nil {
		return // nobody reads the answer
	}
	st := statusOf(err)
	if rec, ok := w.(*recorder); ok {
		s.answeredStatus(rec.trail, st)
		rec.seat.free()
		if !s.admitRefusal(rec) {
			return
		}
	}
	if st.Code >= 500 {
		s.Log.Warn("request failed", "method", req.Method, "path", req.URL.Path, "code", st.Code, "err", logged(err))
	}
	f, nerr := negotiate(req, false, false, false)
	if nerr != nil {
		f = format{media: codec.JSON, pretty: wantsPretty(req)}
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	var buf bytes.Buffer
	e := &encoder{codec: s.State.Codec, f: f}
	if err := e.raw(&buf, st); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// A refusal may repeat what is wrong with the request, and be as large.
	if rec, ok := w.(*recorder); ok && buf.Len() > leastHeld && !rec.lease.Force(int64(buf.Len())) {
		rec.broken = http.ErrAbortHandler
		return
	}
	send(w, req, int(st.Code), f.media.ContentType(), buf.Bytes())
}

// readRequest reads the query and the body.
func (s *Server) readRequest(ctx context.Context, w http.ResponseWriter, req *http.Request, r *Request) error {
	q := req.URL.Query()
	if r.Verb == "get" {
		r.Options.List.ResourceVersion = q.Get("resourceVersion")
		return nil
	}
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if req.Header.Get("Content-Type") == "" {
		contentType, err = "", nil
	}
	if err != nil && r.Verb != "list" && r.Verb != "watch" && r.Verb != "patch" {
		return unsupportedMedia(accepted)
	}
	if r.Verb == "patch" {
		r.Patch = types.PatchType(contentType)
		switch {
		case r.Patch == types.StrategicMergePatchType && r.Def.JSONOnly:
			return unsupportedMedia(strings.Join([]string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyPatchType)}, ", "))
		case slices.Contains([]types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType}, r.Patch):
		default:
			return refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type")
		}
	}
	if err := r.parse(q); err != nil {
		return err
	}
	if r.Verb == "list" || r.Verb == "watch" {
		return nil
	}
	if err := s.admitBody(ctx, r, req.ContentLength); err != nil {
		return err
	}
	body, err := readAll(ctx, w, req)
	if _, tooBig := errors.AsType[*http.MaxBytesError](err); tooBig {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err != nil {
		return badRequest("unable to read the body: %v", err)
	}
	r.Body = body
	r.leases[0].Shrink(int64(len(body)))
	if err := s.admitDecoding(ctx, r, contentType); err != nil {
		return err
	}
	if r.Verb == "patch" {
		r.Media = codec.JSON
		return nil
	}
	if r.Verb == "delete" || r.Verb == "deletecollection" {
		return s.readDelete(r, q, contentType)
	}
	var known bool
	if r.Media, known = codec.MediaOf(contentType); !known {
		return unsupportedMedia(accepted)
	}
	return nil
}

// readAll reads the body of a request, which may be here as a whole, as a small one is. Otherwise it must be here when the
// time of the request is over.
func readAll(ctx context.Context, w http.ResponseWriter, req *http.Request) ([]byte, error) {
	if b, ok := req.Body.(interface{ Whole() ([]byte, bool) }); ok {
		if p, ok := b.Whole(); ok && len(p) <= maxBody {
			return p, nil
		}
	}
	if at, ok := ctx.Deadline(); ok && req.Body != http.NoBody {
		c := http.NewResponseController(w)
		if c.SetReadDeadline(at) == nil {
			defer func() { _ = c.SetReadDeadline(time.Time{}) }()
		}
	}
	return readTo(http.MaxBytesReader(w, req.Body, maxBody), req.ContentLength)
}

// readTo reads a body that says how long it is, into memory of that size: one byte more, so that the end is seen without
// more room. What says nothing, or too much, begins small.
func readTo(body io.Reader, said int64) ([]byte, error) {
	if said < 0 || said > maxBody {
		return io.ReadAll(body)
	}
	out := make([]byte, 0, said+1)
	for {
		n, err := body.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(out) == cap(out) { // it is longer than it said
			out = append(out, 0)[:len(out)]
		}
	}
}

// readDelete reads DeleteOptions from the body, or from the query when there is none.
func (s *Server) readDelete(r *Request, q url.Values, contentType string) error {
	o := &metav1.DeleteOptions{}
	if len(r.Body) > 0 {
		m, known := codec.MediaOf(contentType)
		if !known {
			return unsupportedMedia(accepted)
		}
		gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		if err := s.State.Codec.DecodeOptions(r.Body, m, gvk, o); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	} else if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q, o, nil); err != nil {
		return badRequest("%v", err)
	}
	r.Options.Delete = o
	r.Options.DryRun = len(o.DryRun) > 0
	return nil
}

// watchSink sends the events of a watch to a client of HTTP.
type watchSink struct{ *recorder }

// stated says that the present state is sent. From now on the client may take its time.
func (w watchSink) stated() { w.last() }

// encoded says that all of the state is encoded: what is left of it is a piece.
func (w watchSink) encoded() { w.seat.free() }

// stream sends the events of a watch.
func (s *Server) stream(w *recorder, req *http.Request, st *Stream, e *encoder) {
	if strings.EqualFold(req.Header.Get("Upgrade"), "websocket") {
		s.streamWebSocket(w, req, st, e) //nolint:contextcheck // it takes that of the request
		return
	}
	h := w.Header()
	contentType := e.f.media.ContentType()
	if e.f.media != codec.JSON {
		contentType += ";stream=watch"
	}
	h.Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	w.Flush()
	e.f.pretty = false
	st.run(req.Context(), e, watchSink{w})
}

package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/server/audit"
)

// Auditor records requests, as the server needs it. What it returns may be nil: such a request leaves no trail.
type Auditor interface {
	// Begin opens the trail of a request.
	Begin(audit.Request) *audit.Trail
	// Refuse opens the trail of a request whose client could not be recognised.
	Refuse(audit.Request) *audit.Trail
}

// errUntold refuses a request that has to be audited and cannot be.
var errUntold = errors.New("failed to store audit event")

// auditID is the client's own name for its request, or a new one.
func auditID(req *http.Request) string {
	if id := req.Header.Get("Audit-Id"); id != "" && len(id) <= 256 {
		return id
	}
	return uuid.NewString()
}

// trail opens the trail of an HTTP request; who is nil when the client could not be recognised.
func (s *Server) trail(req *http.Request, rt *route, who user.Info, id string, start time.Time) *audit.Trail {
	if s.Audit == nil {
		return nil
	}
	r := audit.Request{
		ID: id, Start: start, HTTP: req, User: who, Verb: rt.verb, Path: req.URL.Path, IsResource: rt.resource,
		Namespace: rt.namespace, Group: rt.gvr.Group, Version: rt.gvr.Version, Resource: rt.gvr.Resource, Subresource: rt.sub, Name: rt.name,
		Long: rt.verb == "watch" || lasts(rt.sub),
	}
	if def := s.State.defs.Load().byVersion[rt.gvr]; def != nil {
		r.Confidential = def.HoldsSecrets(rt.sub)
	}
	if rt.resource && rt.name == "" && rt.verb != "create" {
		// A collection of which one name is asked for counts as a request for that object.
		if sel, err := fields.ParseSelector(req.URL.Query().Get("fieldSelector")); err == nil {
			r.Name, _ = sel.RequiresExactMatch("metadata.name")
		}
	}
	if who == nil {
		return s.Audit.Refuse(r)
	}
	return s.Audit.Begin(r)
}

// trailLocal opens the trail of a request from this process.
func (s *Server) trailLocal(r *Request) *audit.Trail {
	if s.Audit == nil {
		return nil
	}
	a := audit.Request{
		ID: uuid.NewString(), Start: time.Now(), Agent: r.Agent, User: r.User, Verb: r.Verb, IsResource: true,
		Namespace: r.Namespace, Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
		Long: r.Verb == "watch",
	}
	if r.Sub != nil {
		a.Subresource = r.Sub.Name
	}
	a.Confidential = r.Def.HoldsSecrets(a.Subresource)
	a.Path = localPath(&a)
	a.URI = a.Path
	return s.Audit.Begin(a)
}

// serveLocal serves a request from this process, which leaves the same trail as one from outside.
func (s *Server) serveLocal(ctx context.Context, r *Request) (*Response, error) {
	r.trail = s.trailLocal(r)
	if r.trail == nil {
		return s.Serve(ctx, r)
	}
	if r.trail.Untold() {
		return nil, apierrors.NewInternalError(errUntold)
	}
	ended := false
	defer func() {
		if !ended {
			r.trail.Panicked("the log says more")
		}
	}()
	res, err := s.Serve(ctx, r)
	ended = true
	if err != nil {
		s.failedLocal(r, err)
		return nil, err
	}
	s.answered(r.trail, res, &encoder{codec: s.State.Codec, def: r.Def, f: format{media: codec.JSON}}, nil)
	r.trail.Done(res.Code)
	return res, nil
}

func (s *Server) failedLocal(r *Request, err error) {
	st := statusOf(err)
	s.answeredStatus(r.trail, st)
	r.trail.Done(int(st.Code))
}

// openLocal asks whether a caller in this process may open a view by this request. The watch behind a view lasts as long
// as the process, so its trail has a beginning and no end.
func (s *Server) openLocal(ctx context.Context, r *Request) error {
	r.trail = s.trailLocal(r)
	err := s.authorize(ctx, r)
	switch {
	case err != nil:
		s.failedLocal(r, err)
	case r.Verb == "watch":
		r.trail.Started(http.StatusOK)
	default:
		r.trail.Done(http.StatusOK)
	}
	return err
}

// localPath is the path that the request would have if it came from outside.
func localPath(a *audit.Request) string {
	parts := []string{"/apis", a.Group, a.Version}
	if a.Group == "" {
		parts = []string{"/api", a.Version}
	}
	if a.Namespace != "" {
		parts = append(parts, "namespaces", a.Namespace)
	}
	parts = append(parts, a.Resource, a.Name, a.Subresource)
	path, err := url.JoinPath(parts[0], parts[1:]...)
	if err != nil {
		return ""
	}
	return path
}

// heard records the object that a request brought.
func (s *Server) heard(r *Request, obj kind.Object) {
	if r.trail == nil {
		return
	}
	r.trail.Object(obj)
	if !r.trail.WantsRequest() {
		return
	}
	if len(r.Body) > audit.MaxBodies {
		r.trail.TooLarge()
		return
	}
	var buf bytes.Buffer
	if err := s.State.Codec.Append(&buf, codec.JSON, obj); err == nil {
		r.trail.Request(buf.Bytes())
	}
}

// heardBody records a body that is no object: a patch, or the options of a deletion.
func (s *Server) heardBody(r *Request) {
	if len(r.Body) == 0 || !r.trail.WantsRequest() {
		return
	}
	switch r.Verb {
	case "patch":
		if len(r.Body) > audit.MaxBodies {
			r.trail.TooLarge()
			return
		}
		if text, err := yaml.YAMLToJSON(r.Body); err == nil {
			r.trail.Request(text)
		}
	case "delete", "deletecollection":
		var buf bytes.Buffer
		o := *r.Options.Delete
		o.Kind, o.APIVersion = "DeleteOptions", "meta.k8s.io/v1"
		if err := s.State.Codec.Append(&buf, codec.JSON, &o); err == nil {
			r.trail.Request(buf.Bytes())
		}
	}
}

// answered records an answer. sent is what the client gets; it is encoded again when that is not plain JSON.
func (s *Server) answered(t *audit.Trail, res *Response, e *encoder, sent []byte) {
	if t == nil {
		return
	}
	if st, isStatus := res.Object.(*metav1.Status); isStatus {
		t.Status(st)
	}
	switch {
	case !t.WantsResponse() || res.Watch != nil:
	case len(sent) > audit.MaxBodies:
		t.TooLarge()
	case len(sent) > 0 && e.f.media == codec.JSON && !e.f.pretty:
		t.Response(bytes.Clone(sent))
	default:
		plain := *e
		plain.f.media, plain.f.pretty = codec.JSON, false
		var buf bytes.Buffer
		if err := plain.response(&buf, res, nil); err == nil {
			t.Response(buf.Bytes())
		}
	}
}

// answeredStatus records a failure.
func (s *Server) answeredStatus(t *audit.Trail, st *metav1.Status) {
	if t == nil {
		return
	}
	t.Status(st)
	if t.WantsResponse() {
		var buf bytes.Buffer
		if err := s.State.Codec.Append(&buf, codec.JSON, st); err == nil {
			t.Response(buf.Bytes())
		}
	}
}

package localclient

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/audit"
	"proa.dev/server/encode"
)

// beginAudit opens the audit record of a request; nil when requests are not audited.
func (l *localClient) beginAudit(r *server.Request) *audit.Record {
	if l.server.Audit == nil {
		return nil
	}
	a := audit.Request{
		ID: uuid.NewString(), Start: time.Now(), Agent: r.Agent, User: r.User, Verb: r.Verb, IsResource: true,
		Namespace: r.Namespace, Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
		LongRunning: r.Verb == "watch",
	}
	if r.Sub != nil {
		a.Subresource = r.Sub.Name
	}
	a.Confidential = r.Def.HoldsSecrets(a.Subresource)
	a.Path = requestPath(&a)
	a.URI = a.Path
	return l.server.Audit.Begin(a)
}

// serveAudited serves a request and records it in the audit log, as a request over HTTP is recorded.
func (l *localClient) serveAudited(ctx context.Context, r *server.Request) (*server.Response, error) {
	r.Audit = l.beginAudit(r)
	if r.Audit == nil {
		return l.server.Serve(ctx, r)
	}
	if r.Audit.Failed() {
		return nil, apierrors.NewInternalError(server.ErrAuditFailed)
	}
	ended := false
	defer func() {
		if !ended {
			r.Audit.Panicked("the log says more")
		}
	}()
	res, err := l.server.Serve(ctx, r)
	ended = true
	if err != nil {
		l.auditFailure(r, err)
		return nil, err
	}
	encode.AuditResponse(r.Audit, res, &encode.Encoder{Codec: l.server.State.Codec, Def: r.Def, Format: encode.Format{Media: codec.JSON}},
		nil)
	r.Audit.ResponseComplete(res.Code)
	return res, nil
}

// auditFailure completes the audit record of a request that has failed.
func (l *localClient) auditFailure(r *server.Request, err error) {
	st := apistatus.Of(err)
	encode.AuditStatus(r.Audit, l.server.State.Codec, st)
	r.Audit.ResponseComplete(int(st.Code))
}

// authorizeView decides whether the user may make the list or watch behind a view. That watch lasts as long as the
// process, so its audit record has a beginning and no end.
func (l *localClient) authorizeView(ctx context.Context, r *server.Request) error {
	r.Audit = l.beginAudit(r)
	err := l.server.Authorize(ctx, r)
	switch {
	case err != nil:
		l.auditFailure(r, err)
	case r.Verb == "watch":
		r.Audit.ResponseStarted(apistatus.CodeOK)
	default:
		r.Audit.ResponseComplete(apistatus.CodeOK)
	}
	return err
}

// requestPath returns the path that the request would have over HTTP.
func requestPath(a *audit.Request) string {
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

package httpapi

import (
	"net/http"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/audit"
)

// auditID returns the audit ID that the client sent, or a new one.
func auditID(req *http.Request) string {
	if id := req.Header.Get("Audit-Id"); id != "" && len(id) <= 256 {
		return id
	}
	return uuid.NewString()
}

// beginAudit opens the audit record of a request; nil when it is not audited. who is nil when the client could not be
// authenticated.
func (s *Handler) beginAudit(req *http.Request, rt *route, who user.Info, id string, start time.Time) *audit.Record {
	if s.Server.Audit == nil {
		return nil
	}
	r := audit.Request{
		ID: id, Start: start, HTTP: req, User: who, Verb: rt.verb, Path: req.URL.Path, IsResource: rt.resource,
		Namespace: rt.namespace, Group: rt.gvr.Group, Version: rt.gvr.Version, Resource: rt.gvr.Resource, Subresource: rt.sub,
		Name:        rt.name,
		LongRunning: rt.verb == "watch" || isLongRunning(rt.sub),
	}
	if def := s.Server.State.Served(rt.gvr); def != nil {
		r.Confidential = def.HoldsSecrets(rt.sub)
	}
	if rt.resource && rt.name == "" && rt.verb != "create" {
		// A list or watch of one name counts as a request for that object.
		if sel, err := fields.ParseSelector(req.URL.Query().Get("fieldSelector")); err == nil {
			r.Name, _ = sel.RequiresExactMatch("metadata.name")
		}
	}
	if who == nil {
		return s.Server.Audit.Refuse(r)
	}
	return s.Server.Audit.Begin(r)
}

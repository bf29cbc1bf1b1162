package server

import (
	"bytes"
	"errors"

	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/audit"
)

// Auditor opens audit records. A record that it returns may be nil: such a request is not audited.
type Auditor interface {
	// Begin opens the record of a request.
	Begin(audit.Request) *audit.Record
	// Refuse opens the record of a request whose client could not be authenticated.
	Refuse(audit.Request) *audit.Record
}

// ErrAuditFailed is the error of a request that must be audited when its record cannot be written.
var ErrAuditFailed = errors.New("failed to store audit event")

// auditRequestObject adds the object of a request to its audit record.
func (s *Server) auditRequestObject(r *Request, obj kind.Object) {
	if r.Audit == nil {
		return
	}
	r.Audit.SetObject(obj)
	if !r.Audit.WantsRequest() {
		return
	}
	if len(r.Body) > audit.MaxBodies {
		r.Audit.SetTruncated()
		return
	}
	var buf bytes.Buffer
	if err := s.State.Codec.Append(&buf, codec.JSON, obj); err == nil {
		r.Audit.SetRequestBody(buf.Bytes())
	}
}

// auditRequestBody adds a body that is no object to the audit record: a patch, or the options of a deletion.
func (s *Server) auditRequestBody(r *Request) {
	if len(r.Body) == 0 || !r.Audit.WantsRequest() {
		return
	}
	switch r.Verb {
	case "patch":
		if len(r.Body) > audit.MaxBodies {
			r.Audit.SetTruncated()
			return
		}
		if text, err := yaml.YAMLToJSON(r.Body); err == nil {
			r.Audit.SetRequestBody(text)
		}
	case "delete", "deletecollection":
		var buf bytes.Buffer
		o := *r.Options.Delete
		o.Kind, o.APIVersion = "DeleteOptions", "meta.k8s.io/v1"
		if err := s.State.Codec.Append(&buf, codec.JSON, &o); err == nil {
			r.Audit.SetRequestBody(buf.Bytes())
		}
	}
}

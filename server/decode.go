package server

import (
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/decode"
)

// decode is the first half of hop 5: it reads the body of a request as an object of the resource's kind, or of the
// subresource's, and fills in defaults.
func (s *Server) decode(r *Request) (kind.Object, error) {
	defer r.Clock.Done(hop.Schema)
	if r.Object != nil {
		if r.Sub == nil || r.Sub.Body == nil {
			r.Object.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
			r.Def.Default(r.Object)
		}
		s.auditRequestObject(r, r.Object)
		return r.Object, nil
	}
	want, into := r.Def.GroupVersionKind, r.Def.New
	if r.Sub != nil && r.Sub.Body != nil {
		want, into = r.Sub.Body.GroupVersionKind, r.Sub.Body.New
	}
	obj, err := s.decoder(r).Object(r.Body, r.Media, want, into())
	if err != nil {
		return nil, err
	}
	switch {
	case r.Sub == nil || r.Sub.Body == nil:
		r.Def.Default(obj)
	case r.Sub.Body.Default != nil:
		r.Sub.Body.Default(obj)
	}
	s.auditRequestObject(r, obj)
	return obj, nil
}

// decoder returns the decoder of a request's body.
func (s *Server) decoder(r *Request) *decode.Decoder {
	return &decode.Decoder{Codec: s.State.Codec, Def: r.Def, Sub: r.Sub, Validation: r.Options.Validation, Warn: r.Warn}
}

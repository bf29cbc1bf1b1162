package server

import (
	"encoding/hex"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
)

// decode reads the body of a request as the resource's own kind, or as the subresource's, and fills in
// defaults. It is the first half of hop 5.
func (s *Server) decode(r *Request) (kind.Object, error) {
	defer r.Clock.Done(hop.Schema)
	if r.Object != nil {
		if r.Sub == nil || r.Sub.Body == nil {
			r.Object.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
			r.Def.Default(r.Object)
		}
		s.heard(r, r.Object)
		return r.Object, nil
	}
	want, into := r.Def.GroupVersionKind, r.Def.New
	if r.Sub != nil && r.Sub.Body != nil {
		want, into = r.Sub.Body.GroupVersionKind, r.Sub.Body.New
	}
	obj, err := s.decodeAs(r, r.Body, r.Media, want, into())
	if err != nil {
		return nil, err
	}
	switch {
	case r.Sub == nil || r.Sub.Body == nil:
		r.Def.Default(obj)
	case r.Sub.Body.Default != nil:
		r.Sub.Body.Default(obj)
	}
	s.heard(r, obj)
	return obj, nil
}

// decodeAs decodes with the strictness the client asked for: findings are an error, warnings, or nothing.
func (s *Server) decodeAs(r *Request, body []byte, m codec.Media, want schema.GroupVersionKind, into kind.Object) (kind.Object, error) {
	strict := r.Options.Validation != metav1.FieldValidationIgnore
	obj, found, err := s.State.Codec.Decode(body, m, want, into, strict)
	if err != nil {
		return nil, decodeError(err, want, body)
	}
	o, ok := obj.(kind.Object)
	if !ok {
		return nil, badRequest("a %s cannot be sent here", want.Kind)
	}
	unknown, err := coerce(r.Def, o, strict)
	if err != nil {
		return nil, decodeError(&codec.Error{Found: &want, Err: err}, want, body)
	}
	if err := s.findings(r, append(found, unknown...), want); err != nil {
		return nil, err
	}
	return o, nil
}

// coerce brings a custom object into the form of its schema; an object of another kind, such as a Scale, stays as it is.
func coerce(def *kind.Def, o kind.Object, strict bool) (unknown []error, err error) {
	if def.Coerce == nil || o.GetObjectKind().GroupVersionKind() != def.GroupVersionKind {
		return nil, nil
	}
	return def.Coerce(o, strict)
}

// findings handles what strict decoding found.
func (s *Server) findings(r *Request, found []error, want schema.GroupVersionKind) error {
	if len(found) == 0 {
		return nil
	}
	if r.Options.Validation == metav1.FieldValidationStrict {
		texts := make([]string, len(found))
		for i, f := range found {
			texts[i] = f.Error()
		}
		return badRequest("%s in version %q cannot be handled as a %s: strict decoding error: %s",
			want.Kind, want.Version, want.Kind, strings.Join(texts, ", "))
	}
	r.warnOf(found...)
	return nil
}

// warnOf warns of what strict decoding found. What the YAML reader found is one error of several lines, and a header has one.
func (r *Request) warnOf(found ...error) {
	for _, f := range found {
		text := strings.TrimPrefix(f.Error(), "error converting YAML to JSON: ")
		lines, several := strings.CutPrefix(text, "yaml: unmarshal errors:\n")
		if !several {
			r.Warn(f.Error())
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			r.Warn(strings.TrimSpace(line))
		}
	}
}

// decodeError says what is wrong with a body: by the kind it claims to be, or else by how it begins.
func decodeError(err error, want schema.GroupVersionKind, body []byte) error {
	e, ok := errors.AsType[*codec.Error](err)
	if !ok {
		return apierrors.NewBadRequest(err.Error())
	}
	if e.Found != nil && e.Found.Kind != "" {
		return badRequest("%s in version %q cannot be handled as a %s: %v", e.Found.Kind, e.Found.Version, want.Kind, e.Err)
	}
	return badRequest("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, e.Err, summary(body))
}

func summary(body []byte) string {
	const most = 30
	if len(body) == 0 {
		return "<empty>"
	}
	text, isJSON, rest := body[:min(most, len(body))], body[0] == '{', ""
	if len(body) > most {
		rest = " ..."
	}
	if isJSON {
		return string(text) + rest
	}
	return hex.EncodeToString(text) + rest
}

// toHub brings an object of the request's version to the stored one.
func toHub(def *kind.Def, obj kind.Object) kind.Object {
	if def.Hub == nil {
		return obj
	}
	out := def.ToHub(obj)
	out.GetObjectKind().SetGroupVersionKind(def.Hub.GroupVersionKind)
	return out
}

// fromHub shows a stored object in the version of the request.
func fromHub(def *kind.Def, obj kind.Object) kind.Object {
	if def.Hub == nil {
		return obj
	}
	out := def.FromHub(obj)
	out.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	return out
}

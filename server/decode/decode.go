// Package decode reads the bodies of requests: objects in JSON, YAML or protobuf, patches, and the configurations of
// server-side apply. It is the first half of hop 5 as far as it concerns bytes.
package decode

import (
	"encoding/hex"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/apistatus"
)

// Decoder decodes the body of one request.
type Decoder struct {
	Codec *codec.Codec
	Def   *kind.Def    // the resource of the request
	Sub   *kind.SubDef // its subresource; nil for none
	// Validation is the client's fieldValidation: Strict refuses unknown and duplicate fields, Warn warns of them,
	// Ignore drops them.
	Validation string
	Warn       func(texts ...string)
}

// isStrict says that unknown and duplicate fields are looked for: the client wants them refused or to be warned of
// them.
func (d *Decoder) isStrict() bool { return d.Validation != metav1.FieldValidationIgnore }

// Object decodes a body as an object of the kind want into an empty object. Unknown and duplicate fields are an error,
// a warning, or ignored, as the client asked.
func (d *Decoder) Object(body []byte, m codec.Media, want schema.GroupVersionKind, into kind.Object) (kind.Object, error) {
	strict := d.isStrict()
	obj, found, err := d.Codec.Decode(body, m, want, into, strict)
	if err != nil {
		return nil, d.decodeError(err, want, body)
	}
	o, ok := obj.(kind.Object)
	if !ok {
		return nil, apistatus.BadRequest("a %s cannot be sent here", want.Kind)
	}
	unknown, err := coerce(d.Def, o, strict)
	if apierrors.IsRequestEntityTooLargeError(err) {
		return nil, err
	}
	if err != nil {
		return nil, d.decodeError(&codec.Error{Found: &want, Err: err}, want, body)
	}
	if err := d.reportFindings(append(found, unknown...), want); err != nil {
		return nil, err
	}
	return o, nil
}

// coerce brings a custom object into the form that its schema wants, and returns the fields that the schema does not
// know. An object of another kind, such as a Scale, stays as it is.
func coerce(def *kind.Def, o kind.Object, strict bool) (unknown []error, err error) {
	if def.Coerce == nil || o.GetObjectKind().GroupVersionKind() != def.GroupVersionKind {
		return nil, nil
	}
	return def.Coerce(o, strict)
}

// reportFindings returns an error about the unknown and duplicate fields that strict decoding found, or warns of them.
func (d *Decoder) reportFindings(found []error, want schema.GroupVersionKind) error {
	if len(found) == 0 {
		return nil
	}
	if d.Validation == metav1.FieldValidationStrict {
		texts := make([]string, len(found))
		for i, f := range found {
			texts[i] = f.Error()
		}
		return apistatus.BadRequest("%s in version %q cannot be handled as a %s: strict decoding error: %s",
			want.Kind, want.Version, want.Kind, strings.Join(texts, ", "))
	}
	d.warnOfFindings(found...)
	return nil
}

// warnOfFindings warns of unknown and duplicate fields. The YAML reader reports several in one error of several lines;
// a Warning header has one line.
func (d *Decoder) warnOfFindings(found ...error) {
	for _, f := range found {
		text := strings.TrimPrefix(f.Error(), "error converting YAML to JSON: ")
		lines, several := strings.CutPrefix(text, "yaml: unmarshal errors:\n")
		if !several {
			d.Warn(f.Error())
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			d.Warn(strings.TrimSpace(line))
		}
	}
}

// decodeError returns the error for a body that cannot be decoded. It names the kind that the body claims to be, or
// else shows how the body begins, unless the kind is confidential: errors end up in logs of clients.
func (d *Decoder) decodeError(err error, want schema.GroupVersionKind, body []byte) error {
	e, ok := errors.AsType[*codec.Error](err)
	if !ok {
		return apierrors.NewBadRequest(err.Error())
	}
	if e.Found != nil && e.Found.Kind != "" {
		return apistatus.BadRequest("%s in version %q cannot be handled as a %s: %v", e.Found.Kind, e.Found.Version, want.Kind, e.Err)
	}
	return apistatus.BadRequest("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, e.Err,
		d.redact(summarize(body)))
}

// summarize returns the beginning of a body for an error message.
func summarize(body []byte) string {
	const maxShown = 30
	if len(body) == 0 {
		return "<empty>"
	}
	text, isJSON, rest := body[:min(maxShown, len(body))], body[0] == '{', ""
	if len(body) > maxShown {
		rest = " ..."
	}
	if isJSON {
		return string(text) + rest
	}
	return hex.EncodeToString(text) + rest
}

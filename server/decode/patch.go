package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kinds/lib/patchcost"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/apistatus"
)

// maxCopied is how many bytes the copy operations of one JSON patch may add to a document.
const maxCopied = 3 << 20

// boundPatches sets maxCopied in the library, which keeps that bound in a global variable.
var boundPatches = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxCopied })

// maxPatchOps is how many operations a JSON patch may have.
const maxPatchOps = 10000

// Patch reads a JSON patch, merge patch or strategic merge patch, and returns the function that applies it. The
// function may be called for several states of the object.
func (d *Decoder) Patch(t types.PatchType, body []byte) (func(cur kind.Object) (kind.Object, error), error) {
	boundPatches()
	if !json.Valid(body) {
		return nil, apistatus.BadRequest("invalid JSON patch")
	}
	switch t {
	case types.StrategicMergePatchType:
		m := map[string]any{}
		found, err := d.unmarshal(body, &m)
		if err != nil {
			return nil, err
		}
		return func(cur kind.Object) (kind.Object, error) { return d.strategic(cur, m, found) }, nil
	case types.MergePatchType:
		found, err := d.unmarshal(body, &map[string]any{})
		if err != nil {
			return nil, patchError(err)
		}
		return func(cur kind.Object) (kind.Object, error) {
			return d.patchJSON(cur, found, func(doc []byte) ([]byte, error) {
				out, err := jsonpatch.MergePatch(doc, body)
				if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
					err = apierrors.NewBadRequest(err.Error())
				}
				return out, err
			})
		}, nil
	case types.JSONPatchType:
		var ops []jsonPatchOp
		found, err := d.unmarshal(body, &ops)
		if err != nil {
			return nil, patchError(err)
		}
		for i, f := range found {
			found[i] = fmt.Errorf("json patch %w", f)
		}
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(p) > maxPatchOps {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d",
				maxPatchOps, len(p)))
		}
		shifts := 0
		for _, op := range ops {
			shifts += patchcost.Shifts(op.Op, op.Path, op.From)
		}
		return func(cur kind.Object) (kind.Object, error) {
			return d.patchJSON(cur, found, func(doc []byte) ([]byte, error) {
				if patchcost.Exceeds(shifts, doc) {
					return nil, apierrors.NewRequestEntityTooLargeError("the patch has too many operations on list items for an object of this size")
				}
				out, err := p.Apply(doc)
				if err != nil {
					err = unprocessableError(err)
				}
				return out, err
			})
		}, nil
	}
	return nil, apistatus.BadRequest("unknown patch type %q", t)
}

// unprocessableError returns the error 422 for a patch that cannot be applied to the object.
func unprocessableError(err error) error {
	return apierrors.NewGenericServerResponse(apistatus.CodeUnprocessable, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// patchError returns the error for a patch that cannot be decoded. The Go type in its text is given the name that it
// has upstream.
func patchError(err error) error {
	return apistatus.BadRequest("error decoding patch: %s",
		strings.ReplaceAll(err.Error(), "[]decode.jsonPatchOp", "[]handlers.jsonPatchOp"))
}

// jsonPatchOp names the fields that an operation may have, so that strict decoding finds others.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// unmarshal reads the JSON of a patch, and returns duplicate and unknown fields unless the client ignores them.
func (d *Decoder) unmarshal(body []byte, into any) ([]error, error) {
	if d.Validation == metav1.FieldValidationIgnore {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, into); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, nil
	}
	found, err := kjson.UnmarshalStrict(body, into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return found, nil
}

// patchJSON applies a patch to the JSON of an object and decodes the result. found are the findings of strict decoding
// in the patch itself.
func (d *Decoder) patchJSON(cur kind.Object, found []error, apply func([]byte) ([]byte, error)) (kind.Object, error) {
	var doc bytes.Buffer
	if err := d.Codec.Append(&doc, codec.JSON, cur); err != nil {
		return nil, err
	}
	text, err := apply(doc.Bytes())
	if err != nil {
		return nil, err
	}
	gvk := cur.GetObjectKind().GroupVersionKind()
	strict := d.isStrict()
	obj, more, err := d.Codec.Decode(text, codec.JSON, gvk, d.newObject(), strict)
	if err == nil {
		var unknown []error
		unknown, err = coerce(d.Def, obj.(kind.Object), strict)
		more = append(more, unknown...)
	}
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "",
			field.ErrorList{field.Invalid(field.NewPath("patch"), d.redact(string(text)), err.Error())})
	}
	if err := d.reportPatchFindings(append(found, more...), d.redact(string(text))); err != nil {
		return nil, err
	}
	return obj.(kind.Object), nil
}

// strategic applies a strategic merge patch by the merge rules in the tags of the Go type.
func (d *Decoder) strategic(cur kind.Object, patch map[string]any, found []error) (kind.Object, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cur)
	if err != nil {
		return nil, err
	}
	if sent := countItems(patch); sent.all*max(sent.longest, countItems(doc).longest) > maxMerges {
		return nil, apierrors.NewRequestEntityTooLargeError("the lists of the patch and of the object have too many items to merge them: " +
			"send fewer at a time, or a JSON merge patch")
	}
	next := d.newObject()
	merged, err := strategicpatch.StrategicMergeMapPatch(doc, runtime.DeepCopyJSON(patch), next)
	switch {
	case err == nil:
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, unprocessableError(err)
	default:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	strict := d.isStrict()
	shown := d.redact(fmt.Sprintf("%+v", patch))
	err = quantity.CheckValue(merged, reflect.TypeOf(next))
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, next, strict)
	}
	if err != nil {
		more, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "",
				field.ErrorList{field.Invalid(field.NewPath("patch"), shown, err.Error())})
		}
		found = append(found, more.Errors()...)
	}
	if err := d.reportPatchFindings(found, shown); err != nil {
		return nil, err
	}
	next.GetObjectKind().SetGroupVersionKind(cur.GetObjectKind().GroupVersionKind())
	return next, nil
}

// maxMerges limits the comparisons of a strategic merge: the library looks in a list for each item of the patch.
const maxMerges = 1 << 26

// items describes the lists of a document: the number of all their items, and that of the longest list.
type items struct{ all, longest int }

// countItems counts the items of all lists in a document.
func countItems(doc any) (n items) {
	add := func(v any) {
		if nested := countItems(v); nested.all > 0 {
			n.all, n.longest = n.all+nested.all, max(n.longest, nested.longest)
		}
	}
	switch doc := doc.(type) {
	case map[string]any:
		for _, v := range doc {
			add(v)
		}
	case []any:
		n = items{len(doc), len(doc)}
		for _, v := range doc {
			add(v)
		}
	}
	return n
}

// redact returns a text for the error about a patch, or a placeholder when the kind is confidential: whoever may patch
// a Secret need not be allowed to read it, nor need those who read the audit log.
func (d *Decoder) redact(text string) string {
	if d.Def.Confidential {
		return "(not shown)"
	}
	return text
}

// newObject returns an empty object of the type that is patched.
func (d *Decoder) newObject() kind.Object {
	if d.Sub != nil && d.Sub.Body != nil {
		return d.Sub.Body.New()
	}
	return d.Def.New()
}

// reportPatchFindings does what reportFindings does, in the words of errors about patches.
func (d *Decoder) reportPatchFindings(found []error, shown string) error {
	if len(found) == 0 {
		return nil
	}
	if d.Validation == metav1.FieldValidationStrict {
		text := runtime.NewStrictDecodingError(found).Error()
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, text)})
	}
	d.warnOfFindings(found...)
	return nil
}

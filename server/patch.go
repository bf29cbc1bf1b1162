package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/quantity"
	"proa.dev/server/schema"
)

// maxPatchOps bounds a JSON patch.
const maxPatchOps = 10000

// patch reads a patch once, so that it can be tried against several states of the object.
func (s *Server) patch(r *Request) (*change, error) {
	if r.Patch != types.ApplyPatchType && !json.Valid(r.Body) {
		return nil, badRequest("invalid JSON patch")
	}
	switch r.Patch {
	case types.ApplyPatchType:
		return s.applyPatch(r)
	case types.StrategicMergePatchType:
		m := map[string]any{}
		found, err := unmarshal(r, &m)
		if err != nil {
			return nil, err
		}
		return s.patchBy(r, func(cur kind.Object) (kind.Object, error) { return s.strategic(r, cur, m, found) }), nil
	case types.MergePatchType:
		found, err := unmarshal(r, &map[string]any{})
		if err != nil {
			return nil, prefixed(err)
		}
		return s.patchBy(r, func(cur kind.Object) (kind.Object, error) {
			return s.patchJSON(r, cur, found, func(doc []byte) ([]byte, error) {
				out, err := jsonpatch.MergePatch(doc, r.Body)
				if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
					err = apierrors.NewBadRequest(err.Error())
				}
				return out, err
			})
		}), nil
	case types.JSONPatchType:
		var ops []jsonPatchOp
		found, err := unmarshal(r, &ops)
		if err != nil {
			return nil, prefixed(err)
		}
		for i, f := range found {
			found[i] = fmt.Errorf("json patch %w", f)
		}
		p, err := jsonpatch.DecodePatch(r.Body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(p) > maxPatchOps {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOps, len(p)))
		}
		return s.patchBy(r, func(cur kind.Object) (kind.Object, error) {
			return s.patchJSON(r, cur, found, func(doc []byte) ([]byte, error) {
				out, err := p.Apply(doc)
				if err != nil {
					err = unprocessable(err)
				}
				return out, err
			})
		}), nil
	}
	return nil, badRequest("unknown patch type %q", r.Patch)
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", runtimeschema.GroupResource{}, "", err.Error(), 0, false)
}

// prefixed says what is wrong with a patch. Clients know the type of its operations by another package's name.
func prefixed(err error) error {
	return badRequest("error decoding patch: %s", strings.ReplaceAll(err.Error(), "[]server.jsonPatchOp", "[]handlers.jsonPatchOp"))
}

// jsonPatchOp names the fields an operation may have, so that others are noticed.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// unmarshal reads a JSON patch document and reports duplicate keys.
func unmarshal(r *Request, into any) ([]error, error) {
	if r.Options.Validation == metav1.FieldValidationIgnore {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Body, into); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, nil
	}
	found, err := kjson.UnmarshalStrict(r.Body, into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return found, nil
}

// patchBy makes the change of a patch that works on the object as the client sees it.
func (s *Server) patchBy(r *Request, apply func(seen kind.Object) (kind.Object, error)) *change {
	return &change{make: func(old kind.Object) (kind.Object, error) {
		seen := fromHub(r.Def, old)
		if r.Sub != nil && r.Sub.View != nil {
			var err error
			if seen, err = r.Sub.View(old); err != nil {
				return nil, err
			}
			seen.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		}
		next, err := apply(seen)
		if err != nil {
			return nil, err
		}
		if next.GetName() == "" {
			return nil, badRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name)
		}
		if next.GetName() != r.Name {
			return nil, badRequest("the name of the object (%s) does not match the name on the URL (%s)", next.GetName(), r.Name)
		}
		if r.Sub == nil || r.Sub.View == nil {
			r.Def.Default(next)
		}
		return s.project(r, old, next)
	}}
}

// patchJSON applies a patch to the JSON text of an object.
func (s *Server) patchJSON(r *Request, cur kind.Object, found []error, apply func([]byte) ([]byte, error)) (kind.Object, error) {
	var doc bytes.Buffer
	if err := s.State.Codec.Append(&doc, codec.JSON, cur); err != nil {
		return nil, err
	}
	text, err := apply(doc.Bytes())
	if err != nil {
		return nil, err
	}
	gvk := cur.GetObjectKind().GroupVersionKind()
	strict := r.Options.Validation != metav1.FieldValidationIgnore
	obj, more, err := s.State.Codec.Decode(text, codec.JSON, gvk, fresh(r), strict)
	if err == nil {
		var unknown []error
		unknown, err = coerce(r.Def, obj.(kind.Object), strict)
		more = append(more, unknown...)
	}
	if err != nil {
		return nil, apierrors.NewInvalid(runtimeschema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), quoted(r, string(text)), err.Error())})
	}
	if err := s.patchFindings(r, append(found, more...), quoted(r, string(text))); err != nil {
		return nil, err
	}
	return obj.(kind.Object), nil
}

// strategic merges a patch by the rules in the Go type.
func (s *Server) strategic(r *Request, cur kind.Object, patch map[string]any, found []error) (kind.Object, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cur)
	if err != nil {
		return nil, err
	}
	next := fresh(r)
	merged, err := strategicpatch.StrategicMergeMapPatch(doc, runtime.DeepCopyJSON(patch), next)
	switch {
	case err == nil:
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, unprocessable(err)
	default:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	strict := r.Options.Validation != metav1.FieldValidationIgnore
	shown := quoted(r, fmt.Sprintf("%+v", patch))
	err = quantity.InValue(merged, reflect.TypeOf(next))
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, next, strict)
	}
	if err != nil {
		more, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, apierrors.NewInvalid(runtimeschema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, err.Error())})
		}
		found = append(found, more.Errors()...)
	}
	if err := s.patchFindings(r, found, shown); err != nil {
		return nil, err
	}
	next.GetObjectKind().SetGroupVersionKind(cur.GetObjectKind().GroupVersionKind())
	return next, nil
}

// quoted is a text as the error about a patch shows it. What is stored in a Secret is not shown to somebody who may patch it and need
// not be allowed to read it, nor to those who read the audit log.
func quoted(r *Request, text string) string {
	if r.Def.Confidential {
		return "(not shown)"
	}
	return text
}

// unquoted is the error of an apply without the values that are of a wrong type: the error is no Status, so it ends in the log.
func unquoted(r *Request, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || !r.Def.Confidential {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i], _, _ = strings.Cut(l, ", got ")
	}
	return errors.New(strings.Join(lines, "\n"))
}

// fresh is an empty object of the type that is patched.
func fresh(r *Request) kind.Object {
	if r.Sub != nil && r.Sub.Body != nil {
		return r.Sub.Body.New()
	}
	return r.Def.New()
}

func (s *Server) patchFindings(r *Request, found []error, shown string) error {
	if len(found) == 0 {
		return nil
	}
	if r.Options.Validation == metav1.FieldValidationStrict {
		text := runtime.NewStrictDecodingError(found).Error()
		return apierrors.NewInvalid(runtimeschema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, text)})
	}
	r.warnOf(found...)
	return nil
}

// applyPatch is server-side apply.
func (s *Server) applyPatch(r *Request) (*change, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(r.Body, &config); err != nil {
		return nil, badRequest("error encoding patch: %s", strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	if r.hasNoProto() {
		config = keepInts(config)
	}
	if r.Options.Validation != metav1.FieldValidationIgnore {
		if err := yaml.UnmarshalStrict(r.Body, &map[string]any{}); err != nil {
			if r.Options.Validation == metav1.FieldValidationStrict {
				return nil, badRequest("error strict decoding patch: %v", err)
			}
			r.warnOf(err)
		}
	}
	if err := quantity.InValue(config, reflect.TypeOf(fresh(r))); err != nil {
		return nil, badRequest("error decoding patch: %v", err)
	}
	if err := matchName(r, config); err != nil {
		return nil, err
	}
	if r.Sub != nil && r.Sub.View != nil {
		return s.applyView(r, config)
	}
	return &change{make: func(old kind.Object) (kind.Object, error) {
		out, err := s.manager(r).Apply(old, runtime.DeepCopyJSON(config), r.Options.Manager, schema.Force(r.Options.Force))
		if err != nil {
			return nil, unquoted(r, err)
		}
		obj := out.(kind.Object)
		obj.GetObjectKind().SetGroupVersionKind(r.Def.Storage().GroupVersionKind)
		r.Def.Storage().Default(obj)
		return obj, nil
	}}, nil
}

// keepInts makes the whole numbers of an applied configuration integers. A custom object has no Go type that would do so later, and a number
// that is no integer differs from the one that is stored.
func keepInts(config map[string]any) map[string]any {
	text, err := json.Marshal(config)
	if err != nil {
		return config
	}
	out := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out); err != nil {
		return config
	}
	return out
}

// matchName gives an applied configuration the name of the URL, and refuses another one.
func matchName(r *Request, config map[string]any) error {
	meta, ok := config["metadata"].(map[string]any)
	if !ok {
		if config["metadata"] != nil {
			return badRequest("metadata must be an object")
		}
		meta = map[string]any{}
		config["metadata"] = meta
	}
	if name, given := meta["name"]; !given || name == "" {
		meta["name"] = r.Name
	} else if name != r.Name {
		return badRequest("the name of the object (%v) does not match the name on the URL (%s)", name, r.Name)
	}
	return nil
}

// applyView is server-side apply to a projection: whoever applies a scale owns the replicas of the object itself.
func (s *Server) applyView(r *Request, config map[string]any) (*change, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, err := s.decodeAs(r, text, codec.JSON, r.Sub.Body.GroupVersionKind, r.Sub.Body.New()); err != nil {
		return nil, err
	}
	def := r.Def.Storage()
	manager := s.Owner.For(schema.Target{Kind: r.Sub.Body.GroupVersionKind, Subresource: r.Sub.Name})
	return &change{make: func(old kind.Object) (kind.Object, error) {
		live, err := r.Sub.View(old)
		if err != nil {
			return nil, err
		}
		scale, owners, err := manager.ApplyScale(schema.ScaleApply{
			ParentKind: def.GroupVersionKind, ReplicasPath: r.Sub.ReplicasPath, ParentOwners: old.GetManagedFields(), Live: live,
			Patch: runtime.DeepCopyJSON(config), Manager: r.Options.Manager, Force: schema.Force(r.Options.Force),
		})
		if err != nil {
			return nil, err
		}
		obj, err := s.project(r, old, scale.(kind.Object))
		if err != nil {
			return nil, err
		}
		obj.SetManagedFields(owners)
		return obj, nil
	}}, nil
}

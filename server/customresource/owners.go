package customresource

import (
	"encoding/json"
	"fmt"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Types is what server-side apply needs to know of a custom resource.
type Types struct {
	Converter managedfields.TypeConverter
	Versions  []schema.GroupVersion
}

// Types returns the types. They are made when an object is first written.
func (r *Resource) Types() (Types, error) { return r.types() }

// New returns an empty object, which may be of any kind.
func (r *Resource) New(of schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(of)
	return u, nil
}

// Default sets the defaults of the schema of an object's version.
func (r *Resource) Default(o runtime.Object) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if v := r.versions[u.GroupVersionKind().Version]; v != nil {
		v.setDefaults(u)
	}
}

// ConvertToVersion returns an object in the requested version.
func (r *Resource) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom object", in)
	}
	gvk, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{u.GroupVersionKind()})
	if !ok {
		for _, v := range r.versions {
			if gvk, ok = target.KindForGroupVersionKinds([]schema.GroupVersionKind{v.def.GroupVersionKind}); ok {
				break
			}
		}
	}
	if !ok {
		return nil, fmt.Errorf("%s cannot be converted to %s", u.GroupVersionKind(), target)
	}
	return r.convertNow(u, gvk.GroupVersion())
}

// Convert fills out with in, in the version of out.
func (r *Resource) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("cannot convert %T to %T", in, out)
	}
	got, err := r.convertNow(from, to.GroupVersionKind().GroupVersion())
	if err == nil {
		to.Object = got.(*unstructured.Unstructured).Object
	}
	return err
}

// ConvertFieldLabel does nothing: descriptors check selectors.
func (r *Resource) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// metaSchemas are the schemas of metadata, as far as server-side apply needs them: which lists are sets or maps.
const metaSchemas = `{
"meta.ObjectMeta": {"type": "object", "properties": {
  "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
  "creationTimestamp": {"type": "string", "format": "date-time"},
  "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
  "deletionTimestamp": {"type": "string", "format": "date-time"},
  "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
  "generateName": {"type": "string"},
  "generation": {"type": "integer", "format": "int64"},
  "labels": {"type": "object", "additionalProperties": {"type": "string"}},
  "managedFields": {"type": "array", "items": {"$ref": "#/components/schemas/meta.Free"}, "x-kubernetes-list-type": "atomic"},
  "name": {"type": "string"},
  "namespace": {"type": "string"},
  "ownerReferences": {"type": "array", "items": {"$ref": "#/components/schemas/meta.OwnerReference"},
    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
  "resourceVersion": {"type": "string"},
  "selfLink": {"type": "string"},
  "uid": {"type": "string"}}},
"meta.OwnerReference": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
  "apiVersion": {"type": "string"}, "blockOwnerDeletion": {"type": "boolean"}, "controller": {"type": "boolean"},
  "kind": {"type": "string"}, "name": {"type": "string"}, "uid": {"type": "string"}}},
"meta.Free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}`

// onceTypes returns a function that makes the types of a resource once.
func onceTypes(r *Resource) func() (Types, error) {
	return sync.OnceValues(func() (Types, error) {
		out := Types{Converter: managedfields.NewDeducedTypeConverter()}
		models := map[string]*spec.Schema{}
		if err := json.Unmarshal([]byte(metaSchemas), &models); err != nil {
			return out, err
		}
		typed := false
		for name, v := range r.versions {
			out.Versions = append(out.Versions, v.def.GroupVersion())
			s := v.structural()
			if s == nil {
				continue
			}
			typed = true
			models["version."+name] = modelOf(s, r.kindOf(name))
		}
		if !typed {
			return out, nil
		}
		var err error
		out.Converter, err = managedfields.NewTypeConverter(models, r.Definition.Spec.PreserveUnknownFields)
		return out, err
	})
}

// modelOf returns the schema of a version with the fields that every object has.
func modelOf(s *structuralschema.Structural, gvk schema.GroupVersionKind) *spec.Schema {
	out := s.ToKubeOpenAPI()
	addEmbeddedMeta(out)
	addMeta(out)
	out.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
	return out
}

// addEmbeddedMeta adds metadata to objects embedded in an object.
func addEmbeddedMeta(s *spec.Schema) {
	if inner, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); inner {
		addMeta(s)
	}
	for name, p := range s.Properties {
		addEmbeddedMeta(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbeddedMeta(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbeddedMeta(s.AdditionalProperties.Schema)
	}
}

func addMeta(s *spec.Schema) {
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	s.Properties["metadata"] = *spec.RefSchema("#/components/schemas/meta.ObjectMeta")
	s.Properties["apiVersion"] = *spec.StringProperty()
	s.Properties["kind"] = *spec.StringProperty()
}

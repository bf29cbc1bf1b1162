package crdopenapi

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa.dev/server/openapi"
)

// version is one version of a definition.
type version = apiextensionsv1.CustomResourceDefinitionVersion

const (
	metaTypes   = "io.k8s.apimachinery.pkg.apis.meta.v1."
	conventions = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)

// objectSchema returns the schema of the objects of a version. Where their fields are not known it only says that they
// are objects: kubectl takes a schema with properties as complete.
func objectSchema(d *Definition, name string, dialect openapi.Dialect) json.RawMessage {
	v := find(d, name)
	s := structural(v)
	out := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if isFree := dialect == openapi.V2 && s != nil && (s.XPreserveUnknownFields || d.Spec.PreserveUnknownFields); s != nil && !isFree {
		if dialect == openapi.V2 {
			s = openapiv2.ToStructuralOpenAPIV2(s)
			dropDefaults(s)
		}
		out = s.ToKubeOpenAPI()
		addMeta(out, dialect, metav1.TypeMeta{}.SwaggerDoc())
		addEmbedded(out, dialect)
	}
	return encode(out, d, v, d.Spec.Names.Kind)
}

// listSchema returns the schema of lists of the objects of a version; object is the name of their schema.
func listSchema(d *Definition, v *version, dialect openapi.Dialect, object string) json.RawMessage {
	items := spec.ArrayProperty(spec.RefSchema(dialect.Reference(object)))
	items.Description = "List of " + d.Spec.Names.Plural + ". More info: " + conventions
	out := &spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"object"}, Required: []string{"items"},
		Description: d.Spec.Names.ListKind + " is a list of " + d.Spec.Names.Kind,
	}}
	out.SetProperty("items", *items)
	addTypes(out, metav1.TypeMeta{}.SwaggerDoc())
	out.SetProperty("metadata", reference(dialect, "ListMeta", metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"]))
	return encode(out, d, v, d.Spec.Names.ListKind)
}

// structural returns the structural schema of a version; nil if it has none, or an invalid one.
func structural(v *version) *structuralschema.Structural {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil
	}
	in := &apiextensions.CustomResourceValidation{}
	// The result shares memory with the definition. Structural schemas are copied before they are changed.
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, in, nil); err != nil {
		return nil
	}
	if validation.SchemaHasInvalidTypes(in.OpenAPIV3Schema) {
		return nil
	}
	s, err := structuralschema.NewStructural(in.OpenAPIV3Schema)
	if err != nil || len(structuralschema.ValidateStructural(nil, s)) > 0 {
		return nil
	}
	return s.Unfold()
}

// dropDefaults removes the default values, which upstream's v2 documents do not have.
func dropDefaults(s *structuralschema.Structural) {
	drop := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		had := s.Default.Object != nil
		s.Default.Object = nil
		return had
	}}
	drop.Visit(s)
}

// addMeta adds the fields that every object has. texts are the descriptions of apiVersion and kind.
func addMeta(s *spec.Schema, dialect openapi.Dialect, texts map[string]string) {
	addTypes(s, texts)
	s.SetProperty("metadata", reference(dialect, "ObjectMeta", metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
}

func addTypes(s *spec.Schema, texts map[string]string) {
	for _, field := range []string{"apiVersion", "kind"} {
		s.SetProperty(field, spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: texts[field]}})
	}
}

// reference returns a reference to a type of meta/v1 with a description. In v3 a reference has no fields beside it, so
// it is wrapped in an allOf.
func reference(dialect openapi.Dialect, name, description string) spec.Schema {
	ref := spec.RefSchema(dialect.Reference(metaTypes + name))
	if dialect == openapi.V3 {
		ref = spec.ComposedSchema(*ref)
	}
	ref.Description = description
	return *ref
}

// addEmbedded adds the fields that every object has to embedded objects. In v2 an embedded object that may have any
// field declares none, as in objectSchema.
func addEmbedded(s *spec.Schema, dialect openapi.Dialect) {
	for name, p := range s.Properties {
		addEmbedded(&p, dialect)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbedded(s.Items.Schema, dialect)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema, dialect)
	}
	isFree, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	isObject, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource")
	if !isObject || isFree && dialect == openapi.V2 {
		return
	}
	addMeta(s, dialect, map[string]string{
		"apiVersion": "apiVersion defines the versioned schema of this representation of an object. More info: " + conventions + "#resources",
		"kind":       "kind is a string value representing the type of this object. In CamelCase. More info: " + conventions + "#types-kinds",
	})
	for _, field := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, field) {
			s.Required = append(slices.Clip(s.Required), field)
		}
	}
}

// encode adds the extensions of a kind to a schema, and encodes it.
func encode(s *spec.Schema, d *Definition, v *version, kind string) json.RawMessage {
	s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": d.Spec.Group, "version": v.Name, "kind": kind}})
	if len(v.SelectableFields) > 0 {
		var fields []any
		for _, f := range v.SelectableFields {
			fields = append(fields, map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")})
		}
		s.AddExtension("x-kubernetes-selectable-fields", fields)
	}
	raw, err := s.MarshalJSON()
	if err != nil {
		return json.RawMessage(`{"type":"object"}`) // one schema that cannot be encoded must not make the document fail
	}
	return raw
}

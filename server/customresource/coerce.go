package customresource

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// coerceObject brings an object that a client has sent into the form of its schema: with regular metadata, without
// fields that the schema does not know, and without null where the schema does not allow it. With strict it returns
// what it removed.
func (v *version) coerceObject(o kind.Object, strict bool) (found []error, err error) {
	u := o.(*unstructured.Unstructured)
	if _, err := v.schema(); err != nil {
		return nil, err
	}
	apiVersion, objectKind := u.GetAPIVersion(), u.GetKind()
	meta, has, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: strict})
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, v.prune(u, strict)...)
	ferr, paths := objectmeta.CoerceWithOptions(nil, u.Object, v.structural(), false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: strict})
	if ferr != nil {
		return nil, ferr
	}
	unknown = append(unknown, paths...)
	u.SetAPIVersion(apiVersion)
	u.SetKind(objectKind)
	if has {
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	if err := checkDefaults(u.Object, v.structural()); err != nil {
		return nil, err
	}
	for _, path := range unknown {
		found = append(found, fmt.Errorf("unknown field %q", path))
	}
	return found, nil
}

// prune removes the fields that the schema does not know. Metadata, kind and version stay.
func (v *version) prune(u *unstructured.Unstructured, strict bool) []string {
	if v.preservesUnknown() {
		return nil
	}
	s := v.structural()
	unknown := pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: strict})
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	return unknown
}

// setDefaults sets the defaults of the schema.
func (v *version) setDefaults(o kind.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		structuraldefaulting.Default(u.Object, v.structural())
	}
}

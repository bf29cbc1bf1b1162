package custom

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// coerceObject brings an object that a client has sent into the form of its schema: metadata as all objects have it, no fields that the
// schema does not know, and no null where the schema allows none. With strict it returns what it took away.
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
	ferr, paths := objectmeta.CoerceWithOptions(nil, u.Object, v.structural(), false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: strict})
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
	for _, path := range unknown {
		found = append(found, fmt.Errorf("unknown field %q", path))
	}
	return found, nil
}

// prune takes away what the schema does not know. Metadata, kind and version stay.
func (v *version) prune(u *unstructured.Unstructured, strict bool) []string {
	if v.preservesUnknown() {
		return nil
	}
	s := v.structural()
	unknown := pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: strict})
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	return unknown
}

// setDefaults fills in what the schema has a default for.
func (v *version) setDefaults(o kind.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		structuraldefaulting.Default(u.Object, v.structural())
	}
}

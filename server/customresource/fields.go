package customresource

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// fields returns the fields by which objects can be selected.
func (v *version) fields() map[string]func(kind.Object) string {
	out := map[string]func(kind.Object) string{"metadata.name": kind.Object.GetName}
	if v.resource.Definition.Spec.Scope != apiextensionsv1.ClusterScoped {
		out["metadata.namespace"] = kind.Object.GetNamespace
	}
	for _, f := range v.spec.SelectableFields {
		at := splitPath(f.JSONPath)
		out[strings.TrimPrefix(f.JSONPath, ".")] = func(o kind.Object) string {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return ""
			}
			value, found, err := unstructured.NestedFieldNoCopy(u.Object, at...)
			if err != nil || !found || value == nil {
				return ""
			}
			return fmt.Sprint(value)
		}
	}
	return out
}

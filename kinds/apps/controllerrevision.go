package apps

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// ControllerRevisions are the states that daemon sets and stateful sets can be rolled back to.
func ControllerRevisions() *kind.Def {
	return kind.Define(kind.Resource[appsv1.ControllerRevision]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"},
			Plural:           "controllerrevisions",
		},
		Validate: validateControllerRevision,
		Columns: []kind.Column[appsv1.ControllerRevision]{
			kind.NameColumn[appsv1.ControllerRevision](),
			{Name: "Controller", Description: "Controller of the object", Value: controllerText},
			{Name: "Revision", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"],
				Value: func(r *appsv1.ControllerRevision) any { return r.Revision }},
			kind.AgeColumn[appsv1.ControllerRevision](),
		},
	})
}

func controllerText(r *appsv1.ControllerRevision) any {
	ref := metav1.GetControllerOf(r)
	if ref == nil {
		return "<none>"
	}
	gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return strings.ToLower(gk.String()) + "/" + ref.Name
}

func validateControllerRevision(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := check.NonNegative(r.Revision, field.NewPath("revision"))
	data := field.NewPath("data")
	if old != nil {
		return append(errs, check.Immutable(r.Data, old.Data, data)...)
	}
	if r.Data.Raw == nil {
		return append(errs, field.Required(data, "data is mandatory"))
	}
	var value any
	if err := json.Unmarshal(r.Data.Raw, &value); err != nil {
		return append(errs, field.Invalid(data, "<value omitted>", fmt.Sprintf("error parsing data: %v", err)))
	}
	switch value.(type) {
	case nil:
		errs = append(errs, field.Required(data, "data is mandatory"))
	case map[string]any:
	default:
		errs = append(errs, field.Required(data, "data must be a valid JSON object"))
	}
	return errs
}

package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ResourceClaimTemplates are templates of claims, from which each pod gets its own.
func ResourceClaimTemplates(h Hooks) *kind.Def {
	type template = resourcev1.ResourceClaimTemplate
	return kind.Define(kind.Resource[template]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: resourcev1.GroupName, Version: "v1", Kind: "ResourceClaimTemplate"},
			Plural:           "resourceclaimtemplates",
			Older:            append(kind.SameLayout("v1beta2"), kind.Older("v1beta1", templateFromV1beta1)),
			AllowFirst:       true,
		},
		Delete:   kind.Deletion[template]{ReturnsObject: true},
		Default:  func(t *template) { defaultSpec(&t.Spec.Spec) },
		Prepare:  prepareTemplate,
		Validate: h.validateTemplate,
		Allow:    allowTemplate,
		Columns:  []kind.Column[template]{kind.NameColumn[template](), kind.AgeColumn[template]()},
	})
}

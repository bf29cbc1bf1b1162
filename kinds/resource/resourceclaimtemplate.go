package resource

import (
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/kinds/kind"
)

// ResourceClaimTemplates are claims that each pod gets its own of.
func ResourceClaimTemplates(h Hooks) *kind.Def {
	type template = resourcev1.ResourceClaimTemplate
	return kind.Define(kind.Resource[template]{
		Group: resourcev1.GroupName, Version: "v1", Kind: "ResourceClaimTemplate", Plural: "resourceclaimtemplates",
		Older:    append(kind.SameLayout("v1beta2"), kind.Older("v1beta1", templateFromV1beta1)),
		Delete:   kind.Deletion[template]{Returns: true},
		Default:  func(t *template) { defaultSpec(&t.Spec.Spec) },
		Prepare:  prepareTemplate,
		Validate: h.validateTemplate,
		Allow:    allowTemplate, AllowFirst: true,
		Columns: []kind.Column[template]{kind.NameColumn[template](), kind.AgeColumn[template]()},
	})
}

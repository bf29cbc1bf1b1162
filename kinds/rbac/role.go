package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// Roles grant verbs on resources of one namespace.
func Roles() *kind.Def {
	return kind.Define(kind.Resource[rbacv1.Role]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "Role"}, Plural: "roles",
			CreateOnUpdate: true,
		},
		Name: segmentName,
		Validate: func(r, _ *rbacv1.Role) field.ErrorList {
			return append(validateRules(r.Rules, true), requireVerbs(r.Rules)...)
		},
	})
}

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// RoleBindings give the rights of a role to subjects in one namespace.
func RoleBindings() *kind.Def {
	return kind.Define(kind.Resource[rbacv1.RoleBinding]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "RoleBinding"}, Plural: "rolebindings",
			CreateOnUpdate: true,
		},
		Name:    segmentName,
		Default: func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
		Validate: func(b, old *rbacv1.RoleBinding) field.ErrorList {
			errs := validateBinding(b.RoleRef, b.Subjects, "Role", "ClusterRole")
			if old != nil {
				errs = append(errs, check.ImmutableStruct(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
			}
			return append(errs, requireNames(b.RoleRef, b.Subjects)...)
		},
		Columns: bindingColumns("roleBinding", rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"],
			func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return b.RoleRef, b.Subjects
			}),
	})
}

// ClusterRoleBindings give the rights of a cluster role to subjects everywhere.
func ClusterRoleBindings() *kind.Def {
	return kind.Define(kind.Resource[rbacv1.ClusterRoleBinding]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRoleBinding"},
			Plural:           "clusterrolebindings", Scope: kind.Cluster,
			CreateOnUpdate: true,
		},
		Name:    segmentName,
		Default: func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
		Validate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			errs := validateBinding(b.RoleRef, b.Subjects, "ClusterRole")
			if old != nil {
				errs = append(errs, check.ImmutableStruct(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
			}
			return append(errs, requireNames(b.RoleRef, b.Subjects)...)
		},
		Columns: bindingColumns("clusterRoleBinding", rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"],
			func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return b.RoleRef, b.Subjects
			}),
	})
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// validateBinding checks the role reference, which must be of one of the given kinds, and the subjects. In a binding
// to cluster roles only, which has no namespace, service accounts must name theirs.
func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, kinds ...string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(path.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name != "" {
		errs = append(errs, check.Messages(ref.Name, path.Child("name"), segmentName(ref.Name, false))...)
	}
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, slices.Contains(kinds, "Role"), field.NewPath("subjects").Index(i))...)
	}
	return errs
}

// requireNames checks for missing names. It is separate because its errors are reported last.
func requireNames(ref rbacv1.RoleRef, subjects []rbacv1.Subject) field.ErrorList {
	var errs field.ErrorList
	for i, s := range subjects {
		if s.Name == "" {
			errs = append(errs, field.Required(field.NewPath("subjects").Index(i).Child("name"), ""))
		}
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(field.NewPath("roleRef", "name"), ""))
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, check.Messages(s.Name, path.Child("name"), validation.ValidateServiceAccountName(s.Name, false))...)
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), s.Kind,
			[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}

// bindingColumns returns the columns of both kinds of bindings, which differ in their descriptions.
func bindingColumns[T any, P interface {
	*T
	kind.Object
}](what, roleRef string, parts func(*T) (rbacv1.RoleRef, []rbacv1.Subject)) []kind.Column[T] {
	subjects := func(name, kindName string) kind.Column[T] {
		return kind.Column[T]{Name: name, Wide: true, Description: name + " in the " + what, Value: func(b *T) any {
			_, all := parts(b)
			return subjectNames(all, kindName)
		}}
	}
	return []kind.Column[T]{
		kind.NameColumn[T, P](),
		{Name: "Role", Description: roleRef, Value: func(b *T) any {
			ref, _ := parts(b)
			return ref.Kind + "/" + ref.Name
		}},
		kind.AgeColumn[T, P](),
		subjects("Users", rbacv1.UserKind),
		subjects("Groups", rbacv1.GroupKind),
		subjects("ServiceAccounts", rbacv1.ServiceAccountKind),
	}
}

func subjectNames(subjects []rbacv1.Subject, kindName string) string {
	var names []string
	for _, s := range subjects {
		switch {
		case s.Kind != kindName:
		case kindName == rbacv1.ServiceAccountKind:
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

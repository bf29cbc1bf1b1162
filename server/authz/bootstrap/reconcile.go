package bootstrap

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Existing is how Reconcile sees what the cluster has. The objects are shared and never changed here.
type Existing interface {
	ClusterRole(name string) (*rbacv1.ClusterRole, bool)
	Role(namespace, name string) (*rbacv1.Role, bool)
	ClusterRoleBinding(name string) (*rbacv1.ClusterRoleBinding, bool)
	RoleBinding(namespace, name string) (*rbacv1.RoleBinding, bool)
}

// Op is what to do with an object.
type Op string

const (
	// Create means that the object does not exist.
	Create Op = "create"
	// Update means that something was added to the object that exists.
	Update Op = "update"
	// Recreate means to delete the binding that exists and to create this one: a binding's role cannot change.
	Recreate Op = "recreate"
)

// Steps is what to write, in this order: the roles before the bindings that use them. Objects to update carry
// the resource version of what they were computed from, so that a conflict means to reconcile again.
type Steps struct {
	ClusterRoles        []Step[*rbacv1.ClusterRole]
	ClusterRoleBindings []Step[*rbacv1.ClusterRoleBinding]
	Roles               []Step[*rbacv1.Role]
	RoleBindings        []Step[*rbacv1.RoleBinding]
	// Protected names, as kind and name, the objects that lack something and whose annotation says to leave
	// them so; they are worth a warning.
	Protected []string
}

// Step is one write.
type Step[T any] struct {
	Op     Op
	Object T
}

// Empty says that there is nothing to do.
func (s *Steps) Empty() bool {
	return len(s.ClusterRoles)+len(s.ClusterRoleBindings)+len(s.Roles)+len(s.RoleBindings) == 0
}

// Reconcile says what to write so that the cluster has at least what is wanted. It adds: rules and subjects
// that people have put into an object stay. An object annotated with autoupdate "false" stays as it is.
func Reconcile(have Existing, want *Policy) Steps {
	var s Steps
	for _, w := range want.ClusterRoles {
		h, ok := have.ClusterRole(w.Name)
		s.ClusterRoles = step(&s, s.ClusterRoles, h, w, ok, clusterRole)
	}
	for _, w := range want.ClusterRoleBindings {
		h, ok := have.ClusterRoleBinding(w.Name)
		s.ClusterRoleBindings = step(&s, s.ClusterRoleBindings, h, w, ok, clusterRoleBinding)
	}
	for _, w := range want.Roles {
		h, ok := have.Role(w.Namespace, w.Name)
		s.Roles = step(&s, s.Roles, h, w, ok, role)
	}
	for _, w := range want.RoleBindings {
		h, ok := have.RoleBinding(w.Namespace, w.Name)
		s.RoleBindings = step(&s, s.RoleBindings, h, w, ok, roleBinding)
	}
	return s
}

// object is what the four kinds have in common.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// step appends what is to be done for one object. Change makes out of a copy of the object that exists the one
// that should be; it returns false where the object cannot be changed but must be made anew.
func step[T object[T]](s *Steps, steps []Step[T], have, want T, exists bool, change func(copied, want T) bool) []Step[T] {
	if !exists {
		return append(steps, Step[T]{Create, want.DeepCopy()})
	}
	next := Step[T]{Update, have.DeepCopy()}
	if !change(next.Object, want) {
		next = Step[T]{Recreate, want.DeepCopy()}
	} else {
		next.Object.SetAnnotations(merge(want.GetAnnotations(), have.GetAnnotations()))
		next.Object.SetLabels(merge(want.GetLabels(), have.GetLabels()))
		if equality.Semantic.DeepEqual(next.Object, have) {
			return steps
		}
	}
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		name := want.GetName()
		if namespace := want.GetNamespace(); namespace != "" {
			name = namespace + "/" + name
		}
		s.Protected = append(s.Protected, kind(want)+" "+name)
		return steps
	}
	return append(steps, next)
}

func kind(o any) string {
	switch o.(type) {
	case *rbacv1.ClusterRole:
		return "ClusterRole"
	case *rbacv1.ClusterRoleBinding:
		return "ClusterRoleBinding"
	case *rbacv1.Role:
		return "Role"
	default:
		return "RoleBinding"
	}
}

func clusterRole(copied, want *rbacv1.ClusterRole) bool {
	copied.Rules = addRules(copied.Rules, want.Rules)
	switch {
	case want.AggregationRule == nil:
		copied.AggregationRule = nil
	case copied.AggregationRule == nil:
		copied.AggregationRule = want.AggregationRule.DeepCopy()
	default:
		for _, selector := range want.AggregationRule.ClusterRoleSelectors {
			known := func(s metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, selector) }
			if !slices.ContainsFunc(copied.AggregationRule.ClusterRoleSelectors, known) {
				copied.AggregationRule.ClusterRoleSelectors = append(copied.AggregationRule.ClusterRoleSelectors, *selector.DeepCopy())
			}
		}
	}
	return true
}

func role(copied, want *rbacv1.Role) bool {
	copied.Rules = addRules(copied.Rules, want.Rules)
	return true
}

func clusterRoleBinding(copied, want *rbacv1.ClusterRoleBinding) bool {
	copied.Subjects = addSubjects(copied.Subjects, want.Subjects)
	return copied.RoleRef == want.RoleRef
}

func roleBinding(copied, want *rbacv1.RoleBinding) bool {
	copied.Subjects = addSubjects(copied.Subjects, want.Subjects)
	return copied.RoleRef == want.RoleRef
}

// addRules appends what have does not grant yet, one rule for each thing that is missing.
func addRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	_, missing := validation.Covers(have, want)
	return append(have, missing...)
}

func addSubjects(have, want []rbacv1.Subject) []rbacv1.Subject {
	for _, subject := range want {
		if !slices.Contains(have, subject) {
			have = append(have, subject)
		}
	}
	return have
}

// merge returns the union of two maps; the second wins. No entries at all make a nil map.
func merge(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

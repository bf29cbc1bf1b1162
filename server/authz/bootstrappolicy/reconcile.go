package bootstrappolicy

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Existing is how Reconcile reads what the cluster has. The objects are shared and never changed here.
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

// Steps are the writes, in this order: roles before the bindings that use them. Objects to update have the resource
// version that they were computed from, so that a conflict means to reconcile again.
type Steps struct {
	ClusterRoles        []Step[*rbacv1.ClusterRole]
	ClusterRoleBindings []Step[*rbacv1.ClusterRoleBinding]
	Roles               []Step[*rbacv1.Role]
	RoleBindings        []Step[*rbacv1.RoleBinding]
	// Protected lists, as kind and name, the objects that lack something and whose annotation says to leave them so;
	// they are worth a warning.
	Protected []string
}

// Step is one write.
type Step[T any] struct {
	Op     Op
	Object T
}

// Empty reports whether there is nothing to write.
func (s *Steps) Empty() bool {
	return len(s.ClusterRoles)+len(s.ClusterRoleBindings)+len(s.Roles)+len(s.RoleBindings) == 0
}

// Reconcile returns the writes with which the cluster has at least what is wanted. Except for Policy.Withdraw it only
// adds: rules and subjects that people have put into an object stay. An object annotated with autoupdate "false" stays
// as it is.
func Reconcile(have Existing, want *Policy) Steps {
	var s Steps
	for _, w := range want.ClusterRoles {
		h, ok := have.ClusterRole(w.Name)
		s.ClusterRoles = appendStep(&s, s.ClusterRoles, change[*rbacv1.ClusterRole]{h, w, ok, func(copied, w *rbacv1.ClusterRole) bool {
			// Before rules are added: what is withdrawn may cover a rule that is wanted.
			if withdraw := want.Withdraw[w.Name]; withdraw != nil {
				copied.Rules = withdraw(copied.Rules)
			}
			return clusterRole(copied, w)
		}})
	}
	for _, w := range want.ClusterRoleBindings {
		h, ok := have.ClusterRoleBinding(w.Name)
		s.ClusterRoleBindings = appendStep(&s, s.ClusterRoleBindings, change[*rbacv1.ClusterRoleBinding]{h, w, ok, clusterRoleBinding})
	}
	for _, w := range want.Roles {
		h, ok := have.Role(w.Namespace, w.Name)
		s.Roles = appendStep(&s, s.Roles, change[*rbacv1.Role]{h, w, ok, role})
	}
	for _, w := range want.RoleBindings {
		h, ok := have.RoleBinding(w.Namespace, w.Name)
		s.RoleBindings = appendStep(&s, s.RoleBindings, change[*rbacv1.RoleBinding]{h, w, ok, roleBinding})
	}
	return s
}

// object is the interface that the four kinds have in common.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// change describes an object of the policy and the object in the cluster.
type change[T any] struct {
	have, want T
	exists     bool
	// apply turns a copy of the existing object into the wanted one. It returns false where the object cannot be updated
	// but must be deleted and created again.
	apply func(copied, want T) bool
}

// appendStep appends the write for one object, if one is needed.
func appendStep[T object[T]](s *Steps, steps []Step[T], c change[T]) []Step[T] {
	if !c.exists {
		return append(steps, Step[T]{Create, c.want.DeepCopy()})
	}
	next := Step[T]{Update, c.have.DeepCopy()}
	if !c.apply(next.Object, c.want) {
		next = Step[T]{Recreate, c.want.DeepCopy()}
	} else {
		next.Object.SetAnnotations(merge(c.want.GetAnnotations(), c.have.GetAnnotations()))
		next.Object.SetLabels(merge(c.want.GetLabels(), c.have.GetLabels()))
		if equality.Semantic.DeepEqual(next.Object, c.have) {
			return steps
		}
	}
	if c.have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		name := c.want.GetName()
		if namespace := c.want.GetNamespace(); namespace != "" {
			name = namespace + "/" + name
		}
		s.Protected = append(s.Protected, kind(c.want)+" "+name)
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

// addRules appends what have does not grant yet, one rule for each permission that is missing.
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

// merge returns the union of two maps; the second wins. Without entries the result is nil.
func merge(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

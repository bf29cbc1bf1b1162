package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// Namespaces divide the cluster. A deleted namespace stays in phase Terminating until a controller has emptied it and
// removed the finalizers of its spec through the finalize subresource.
func Namespaces() *kind.Def {
	return kind.Define(kind.Resource[corev1.Namespace]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Plural: "namespaces", Short: []string{"ns"},
			Scope: kind.Cluster,
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		},
		Name: validation.ValidateNamespaceName,

		Spec:     func(n *corev1.Namespace) any { return &n.Spec },
		Status:   func(n *corev1.Namespace) any { return &n.Status },
		Default:  defaultNamespace,
		Prepare:  prepareNamespace,
		Validate: validateNamespace,
		Columns: []kind.Column[corev1.Namespace]{
			kind.NameColumn[corev1.Namespace](),
			{Name: "Status", Description: "The status of the namespace",
				Value: func(n *corev1.Namespace) any { return string(n.Status.Phase) }},
			kind.AgeColumn[corev1.Namespace](),
		},
		Fields: map[string]func(*corev1.Namespace) string{
			"status.phase": func(n *corev1.Namespace) string { return string(n.Status.Phase) },
		},
		ForNodes: namespaceForNodes(),
		Subs: []kind.Sub[corev1.Namespace]{
			{Name: "status", Validate: validateNamespaceStatus},
			{
				Name: "finalize", Verbs: []string{"update"}, Reset: []string{"status"},
				Prepare:  func(n, old *corev1.Namespace) { n.Status = old.Status },
				Validate: validateNamespaceFinalize,
			},
		},
		Delete: kind.Deletion[corev1.Namespace]{
			PreconditionText: "Precondition failed",
			Begin: func(n *corev1.Namespace) {
				n.Status.Phase = corev1.NamespaceTerminating
				n.DeletionGracePeriodSeconds = nil // a namespace knows no grace, not even none
			},
			IsHeld:        func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
			ReturnsObject: true,
		},
	})
}

// defaultNamespace labels a namespace with its name, so that selectors can choose it by name.
func defaultNamespace(n *corev1.Namespace) {
	if n.Name != "" {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[corev1.LabelMetadataName] = n.Name
	}
	defaulting.IfZero(&n.Status.Phase, corev1.NamespaceActive)
}

func prepareNamespace(n, old *corev1.Namespace) {
	if old != nil {
		n.Spec.Finalizers = old.Spec.Finalizers
		return
	}
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	defaultNamespace(n) // a generated name was not known when defaults were filled in
}

func validateNamespace(n, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for _, f := range n.Spec.Finalizers {
		errs = append(errs, validateNamespaceFinalizer(field.NewPath("spec", "finalizers"), string(f))...)
	}
	return errs
}

func validateNamespaceFinalize(n, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range n.Spec.Finalizers {
		errs = append(errs, validateNamespaceFinalizer(field.NewPath("spec", "finalizers").Index(i), string(f))...)
	}
	return errs
}

func validateNamespaceFinalizer(path *field.Path, f string) field.ErrorList {
	errs := validation.ValidateFinalizerName(f, path)
	if strings.Contains(f, "/") || f == string(corev1.FinalizerKubernetes) || f == metav1.FinalizerOrphanDependents ||
		f == metav1.FinalizerDeleteDependents {
		return errs
	}
	return append(errs, field.Invalid(path, f, "name is neither a standard finalizer name nor is it fully qualified"))
}

func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	phase := field.NewPath("status", "Phase")
	switch {
	case n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(phase, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(phase, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// namespaceForNodes returns the form in which a node sees namespaces, to resolve DNS names in them and to enforce
// network policies that select them: names and labels.
func namespaceForNodes() *kind.NodeForm[corev1.Namespace] {
	return &kind.NodeForm[corev1.Namespace]{
		Fields: []string{"metadata.name", "status.phase"},
		Show: func(n *corev1.Namespace) *corev1.Namespace {
			return &corev1.Namespace{TypeMeta: n.TypeMeta, ObjectMeta: kind.MetaForNodes(&n.ObjectMeta),
				Status: corev1.NamespaceStatus{Phase: n.Status.Phase}}
		},
	}
}

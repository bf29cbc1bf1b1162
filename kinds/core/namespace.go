package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// Namespaces divide the cluster.
func Namespaces() *kind.Def {
	return kind.Define(kind.Resource[corev1.Namespace]{
		Version: "v1", Kind: "Namespace", Plural: "namespaces", Short: []string{"ns"}, Scope: kind.Cluster,
		Verbs:  []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Spec:   func(n *corev1.Namespace) any { return &n.Spec },
		Status: func(n *corev1.Namespace) any { return &n.Status },
		Default: func(n *corev1.Namespace) {
			if n.Name != "" {
				if n.Labels == nil {
					n.Labels = map[string]string{}
				}
				n.Labels[corev1.LabelMetadataName] = n.Name
			}
			if n.Status.Phase == "" {
				n.Status.Phase = corev1.NamespaceActive
			}
		},
		Prepare: func(n, old *corev1.Namespace) {
			if old != nil {
				n.Spec.Finalizers = old.Spec.Finalizers
				return
			}
			n.Status.Phase = corev1.NamespaceActive
			for _, f := range n.Spec.Finalizers {
				if f == corev1.FinalizerKubernetes {
					return
				}
			}
			n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
		},
		Fields: map[string]func(*corev1.Namespace) string{"status.phase": func(n *corev1.Namespace) string { return string(n.Status.Phase) }},
		Subs:   []kind.Sub[corev1.Namespace]{{Name: "status"}, {Name: "finalize", Verbs: []string{"update"}}},
		Delete: kind.Deletion[corev1.Namespace]{
			Begin: func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating },
			Held:  func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
		},
	})
}

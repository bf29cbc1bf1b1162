package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// Nodes are the machines of the cluster.
func Nodes() *kind.Def {
	return kind.Define(kind.Resource[corev1.Node]{
		Version: "v1", Kind: "Node", Plural: "nodes", Short: []string{"no"}, Scope: kind.Cluster, Stored: "minions",
		Spec:   func(n *corev1.Node) any { return &n.Spec },
		Status: func(n *corev1.Node) any { return &n.Status },
		Subs:   []kind.Sub[corev1.Node]{{Name: "status"}},
	})
}

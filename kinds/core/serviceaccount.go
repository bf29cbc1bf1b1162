package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// ServiceAccounts are the identities of processes in pods.
func ServiceAccounts() *kind.Def {
	return kind.Define(kind.Resource[corev1.ServiceAccount]{
		Version: "v1", Kind: "ServiceAccount", Plural: "serviceaccounts", Short: []string{"sa"},
	})
}

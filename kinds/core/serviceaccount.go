package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// mountableSecrets is the deprecated annotation that restricts which secrets the pods of a service account may mount.
const mountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// ServiceAccounts are the identities of processes in pods.
func ServiceAccounts() *kind.Def {
	return kind.Define(kind.Resource[corev1.ServiceAccount]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, Plural: "serviceaccounts",
			Short: []string{"sa"},
		},
		Prepare: func(a, _ *corev1.ServiceAccount) {
			for i, s := range a.Secrets {
				a.Secrets[i] = corev1.ObjectReference{Name: s.Name}
			}
		},
		Warn: func(a, old *corev1.ServiceAccount) []string {
			if old != nil {
				if _, had := old.Annotations[mountableSecrets]; had {
					return nil
				}
			}
			if _, has := a.Annotations[mountableSecrets]; !has {
				return nil
			}
			return []string{"metadata.annotations[" + mountableSecrets + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
		},
		Columns: []kind.Column[corev1.ServiceAccount]{
			kind.NameColumn[corev1.ServiceAccount](),
			kind.AgeColumn[corev1.ServiceAccount](),
		},
		Delete: kind.Deletion[corev1.ServiceAccount]{ReturnsObject: true},
		Subs:   []kind.Sub[corev1.ServiceAccount]{{Name: "token", Confidential: true, Body: tokenRequestBody(), Do: requestToken}},
	})
}

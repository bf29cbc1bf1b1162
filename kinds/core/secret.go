package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// Secrets hold what only some may read.
func Secrets() *kind.Def {
	return kind.Define(kind.Resource[corev1.Secret]{
		Version: "v1", Kind: "Secret", Plural: "secrets",
		Default: func(s *corev1.Secret) {
			if s.Type == "" {
				s.Type = corev1.SecretTypeOpaque
			}
		},
		Fields: map[string]func(*corev1.Secret) string{"type": func(s *corev1.Secret) string { return string(s.Type) }},
	})
}

package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// Services name sets of pods and give them addresses.
func Services() *kind.Def {
	return kind.Define(kind.Resource[corev1.Service]{
		Version: "v1", Kind: "Service", Plural: "services", Short: []string{"svc"}, Categories: []string{"all"}, Stored: "services/specs",
		Spec:   func(s *corev1.Service) any { return &s.Spec },
		Status: func(s *corev1.Service) any { return &s.Status },
		Subs:   []kind.Sub[corev1.Service]{{Name: "status"}},
	})
}

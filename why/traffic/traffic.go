// Package traffic explains what leads traffic from outside of the cluster to Services: Ingresses, and the Gateways and routes of the
// Gateway API.
package traffic

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// Explainer explains Ingresses, Gateways and routes.
type Explainer struct {
	*lookup.Reader
	// Now is the time of the question.
	Now time.Time
	// Service explains a Service.
	Service func(context.Context, *corev1.Service) *answer.Answer
}

// PortsOf returns the ports of a Service and what they lead to, as people write them.
func PortsOf(s *corev1.Service) string {
	out := make([]string, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		out = append(out, fmt.Sprintf("%d to %s", p.Port, p.TargetPort.String()))
	}
	return strings.Join(out, ", ")
}

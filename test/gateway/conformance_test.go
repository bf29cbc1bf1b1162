// Package gateway runs the conformance suite of the Gateway API, which is upstream's, against a cluster of proa.
package gateway

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance runs the suite against the cluster that KUBECONFIG names. The flags are those of the suite.
func TestConformance(t *testing.T) { conformance.RunConformance(t) }

//go:build tools

// Package metricsserver pins the metrics-server that takes the place of the built-in metrics in a test.
package metricsserver

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"

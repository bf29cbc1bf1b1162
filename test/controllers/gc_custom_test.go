package controllers

import (
	"testing"

	"proa.dev/control/controltest"
)

// TestGCOfCustomResources has kinds of owners and dependents come and go.
func TestGCOfCustomResources(t *testing.T) {
	t.Parallel()
	controltest.ScriptsOfServer(t, "../../control/gc/testdata/custom/*.txt", "generic-garbage-collector", "crd-status-controller", "crd-finalizer")
}

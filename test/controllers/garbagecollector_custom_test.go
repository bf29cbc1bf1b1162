package controllers

import (
	"testing"

	"proa.dev/control/controltest"
)

// TestGCOfCustomResources creates and deletes the definitions of owners and dependents.
func TestGCOfCustomResources(t *testing.T) {
	t.Parallel()
	controltest.ScriptsOfServer(t, "../../control/garbagecollector/testdata/custom/*.txt", "generic-garbage-collector",
		"crd-status-controller", "crd-finalizer")
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	controltest.ScriptsOfServer(t, "../../control/customresourcedefinition/testdata/scripts/*.txt", "crd-status-controller",
		"crd-finalizer")
}

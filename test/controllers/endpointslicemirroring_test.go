package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/endpointslicemirroring"
)

func TestMirror(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/endpointslicemirroring/testdata/scripts/*.txt", endpointslicemirroring.Controller())
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/endpointslice"
)

func TestEndpointSlice(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/endpointslice/testdata/scripts/*.txt", endpointslice.Controller())
}

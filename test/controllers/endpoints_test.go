package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/endpoints"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/endpoints/testdata/scripts/*.txt", endpoints.Controller())
}

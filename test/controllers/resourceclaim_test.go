package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/resourceclaim"
)

func TestResourceClaim(t *testing.T) {
	t.Parallel()
	loops := resourceclaim.Controllers()
	loops[1].Name += "-claims" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "../../control/resourceclaim/testdata/*.txt", loops...)
}

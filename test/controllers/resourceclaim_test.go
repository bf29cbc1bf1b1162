package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/resourceclaim"
)

func TestResourceClaim(t *testing.T) {
	t.Parallel()
	controllers := resourceclaim.Controllers()
	controllers[1].Name += "-claims" // every controller of a script needs its own name
	controltest.Scripts(t, "../../control/resourceclaim/testdata/*.txt", controllers...)
}

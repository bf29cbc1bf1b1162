package resourceclaim_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/resourceclaim"
)

func TestScripts(t *testing.T) {
	loops := resourceclaim.Controllers()
	loops[1].Name += "-claims" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "testdata/*.txt", loops...)
}

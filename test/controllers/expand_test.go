package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/expand"
	"proa.dev/control/volume"
)

// TestExpand has the loops that bind claims run too: only bound ones grow.
func TestExpand(t *testing.T) {
	t.Parallel()
	loops := volume.Controllers(volume.Config{})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "../../control/expand/testdata/*.txt", append(loops, expand.Controller())...)
}

package expand_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/expand"
	"proa.dev/control/volume"
)

// TestScripts has the loops that bind claims run too: only bound ones grow.
func TestScripts(t *testing.T) {
	loops := volume.Controllers(volume.Config{})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "testdata/*.txt", append(loops, expand.Controller())...)
}

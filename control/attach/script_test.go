package attach_test

import (
	"testing"

	"proa.dev/control/attach"
	"proa.dev/control/controltest"
	"proa.dev/control/volume"
)

// TestScripts has the loops that bind claims run too: only volumes of bound claims are attached.
func TestScripts(t *testing.T) {
	loops := volume.Controllers(volume.Config{})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "testdata/scripts/*.txt", append(loops, attach.Controller(attach.Config{}))...)
}

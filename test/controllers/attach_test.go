package controllers

import (
	"testing"

	"proa.dev/control/attach"
	"proa.dev/control/controltest"
	"proa.dev/control/volume"
)

// TestAttach has the loops that bind claims run too: only volumes of bound claims are attached.
func TestAttach(t *testing.T) {
	t.Parallel()
	loops := volume.Controllers(volume.Config{})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "../../control/attach/testdata/scripts/*.txt", append(loops, attach.Controller(attach.Config{}))...)
}

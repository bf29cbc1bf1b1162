package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/persistentvolume"
	"proa.dev/control/volumeattach"
)

// TestAttach also runs the controllers that bind claims: only volumes of bound claims are attached.
func TestAttach(t *testing.T) {
	t.Parallel()
	controllers := persistentvolume.Controllers(persistentvolume.Config{})
	controllers[1].Name += "-volumes" // every controller of a script needs its own name
	controltest.Scripts(t, "../../control/volumeattach/testdata/scripts/*.txt",
		append(controllers, volumeattach.Controller(volumeattach.Config{}))...)
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/persistentvolume"
	"proa.dev/control/volumeexpand"
)

// TestExpand also runs the controllers that bind claims: only bound claims are expanded.
func TestExpand(t *testing.T) {
	t.Parallel()
	controllers := persistentvolume.Controllers(persistentvolume.Config{})
	controllers[1].Name += "-volumes" // every controller of a script needs its own name
	controltest.Scripts(t, "../../control/volumeexpand/testdata/*.txt", append(controllers, volumeexpand.Controller())...)
}

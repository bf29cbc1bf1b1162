package controllers

import (
	"errors"
	"strings"
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/persistentvolume"
	"proa.dev/control/volumeprotection"
)

// TestVolume removes no folders; removing one that is called stuck fails. The protection controllers run too, so that claims and
// volumes that are being deleted lose their finalizers.
func TestVolume(t *testing.T) {
	t.Parallel()
	controllers := persistentvolume.Controllers(persistentvolume.Config{Remove: func(path string) error {
		if strings.HasSuffix(path, "stuck") {
			return errors.New("unlinkat " + path + ": device or resource busy")
		}
		return nil
	}})
	controllers[1].Name += "-volumes" // every controller of a script needs its own name
	controltest.Scripts(t, "../../control/persistentvolume/testdata/scripts/*.txt",
		append(controllers, volumeprotection.Controllers()...)...)
}

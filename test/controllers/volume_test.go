package controllers

import (
	"errors"
	"strings"
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/protection"
	"proa.dev/control/volume"
)

// TestVolume removes no folders; one that is called stuck cannot be removed. Claims and volumes that are being deleted are let
// go by the loops that protect them.
func TestVolume(t *testing.T) {
	t.Parallel()
	loops := volume.Controllers(volume.Config{Remove: func(path string) error {
		if strings.HasSuffix(path, "stuck") {
			return errors.New("unlinkat " + path + ": device or resource busy")
		}
		return nil
	}})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	controltest.Scripts(t, "../../control/volume/testdata/scripts/*.txt", append(loops, protection.Controllers()...)...)
}

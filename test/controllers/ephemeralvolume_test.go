package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ephemeralvolume"
)

func TestEphemeral(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/ephemeralvolume/testdata/*.txt", ephemeralvolume.Controller())
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ephemeral"
)

func TestEphemeral(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/ephemeral/testdata/*.txt", ephemeral.Controller())
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/volumeprotection"
)

func TestProtection(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/volumeprotection/testdata/*.txt", volumeprotection.Controllers()...)
}

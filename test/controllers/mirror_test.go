package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/mirror"
)

func TestMirror(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/mirror/testdata/scripts/*.txt", mirror.Controller())
}

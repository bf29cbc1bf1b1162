package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/podgc"
)

func TestPodGC(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/podgc/testdata/scripts/*.txt", podgc.Controller(2))
}

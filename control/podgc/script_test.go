package podgc_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/podgc"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", podgc.Controller(2))
}

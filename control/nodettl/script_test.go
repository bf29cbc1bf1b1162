package nodettl_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/nodettl"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", nodettl.Controller())
}

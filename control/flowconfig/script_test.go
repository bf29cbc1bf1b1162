package flowconfig_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/flowconfig"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", flowconfig.Controllers()...)
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/flowconfig"
)

func TestFlowConfig(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/flowconfig/testdata/scripts/*.txt", flowconfig.Controllers()...)
}

package controllers

import (
	"testing"

	"proa.dev/control/availablecondition"
	"proa.dev/control/controltest"
)

func TestAvailable(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/availablecondition/testdata/*.txt", availablecondition.APIServices(),
		availablecondition.FlowSchemas())
}

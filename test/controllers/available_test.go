package controllers

import (
	"testing"

	"proa.dev/control/available"
	"proa.dev/control/controltest"
)

func TestAvailable(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/available/testdata/*.txt", available.APIServices(), available.FlowSchemas())
}

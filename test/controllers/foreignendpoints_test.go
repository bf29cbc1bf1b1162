package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/foreignendpoints"
)

func TestForeignEndpoints(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/foreignendpoints/testdata/scripts/*.txt", foreignendpoints.Controller())
}

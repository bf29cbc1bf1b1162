package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/servicecidr"
)

func TestServiceCIDR(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/servicecidr/testdata/scripts/*.txt", servicecidr.Controller())
}

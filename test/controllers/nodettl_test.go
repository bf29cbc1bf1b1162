package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/nodettl"
)

func TestNodeTTL(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/nodettl/testdata/scripts/*.txt", nodettl.Controller())
}

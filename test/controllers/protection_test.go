package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/protection"
)

func TestProtection(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/protection/testdata/*.txt", protection.Controllers()...)
}

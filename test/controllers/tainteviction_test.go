package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/tainteviction"
)

func TestTaintEviction(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/tainteviction/testdata/*.txt", tainteviction.Controller())
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/serviceaccount"
)

func TestServiceAccount(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/serviceaccount/testdata/*.txt", serviceaccount.Controller())
}

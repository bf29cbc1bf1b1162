package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/strangers"
)

func TestStrangers(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/strangers/testdata/scripts/*.txt", strangers.Controller())
}

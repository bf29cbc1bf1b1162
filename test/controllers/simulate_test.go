package controllers

import (
	"testing"
	"time"

	"proa.dev/control/controltest"
	"proa.dev/node/simulate"
)

func TestSimulate(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../node/simulate/testdata/*.txt", simulate.Controllers(simulate.Behaviour{Ready: time.Second})...)
}

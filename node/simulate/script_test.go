package simulate_test

import (
	"testing"
	"time"

	"proa.dev/control/controltest"
	"proa.dev/node/simulate"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", simulate.Controllers(simulate.Behaviour{Ready: time.Second})...)
}

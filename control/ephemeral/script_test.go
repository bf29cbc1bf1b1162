package ephemeral_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ephemeral"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", ephemeral.Controller())
}

package strangers_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/strangers"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", strangers.Controller())
}

package servicecidr_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/servicecidr"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", servicecidr.Controller())
}

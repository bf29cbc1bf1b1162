package endpointslice_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/endpointslice"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", endpointslice.Controller())
}

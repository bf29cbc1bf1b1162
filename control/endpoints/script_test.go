package endpoints_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/endpoints"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", endpoints.Controller())
}

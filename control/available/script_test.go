package available_test

import (
	"testing"

	"proa.dev/control/available"
	"proa.dev/control/controltest"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", available.APIServices(), available.FlowSchemas())
}

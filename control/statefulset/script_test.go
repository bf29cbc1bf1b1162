package statefulset_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/statefulset"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", statefulset.Controller())
}

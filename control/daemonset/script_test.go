package daemonset_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/daemonset"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", daemonset.Controller())
}

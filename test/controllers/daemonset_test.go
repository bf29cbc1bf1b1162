package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/daemonset"
)

func TestDaemonSet(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/daemonset/testdata/scripts/*.txt", daemonset.Controller())
}

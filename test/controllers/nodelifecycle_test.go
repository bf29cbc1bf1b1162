package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/nodelifecycle"
)

func TestNodeLifecycle(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/nodelifecycle/testdata/*.txt", nodelifecycle.Controller(nodelifecycle.Config{}))
}

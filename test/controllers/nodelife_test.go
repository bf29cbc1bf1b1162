package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/nodelife"
)

func TestNodeLife(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/nodelife/testdata/*.txt", nodelife.Controller(nodelife.Config{}))
}

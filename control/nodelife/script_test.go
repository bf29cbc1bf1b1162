package nodelife_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/nodelife"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", nodelife.Controller(nodelife.Config{}))
}

package rootca_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/rootca"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", rootca.Controller(func() string { return "PEM" }))
}

package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/rootca"
)

func TestRootCA(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/rootca/testdata/*.txt", rootca.Controller(func() string { return "PEM" }))
}

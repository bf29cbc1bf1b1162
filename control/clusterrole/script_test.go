package clusterrole_test

import (
	"testing"

	"proa.dev/control/clusterrole"
	"proa.dev/control/controltest"
	"proa.dev/server/authz"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", clusterrole.Controller(authz.Aggregate))
}

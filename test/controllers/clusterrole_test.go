package controllers

import (
	"testing"

	"proa.dev/control/clusterrole"
	"proa.dev/control/controltest"
	"proa.dev/server/authz"
)

func TestClusterRole(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/clusterrole/testdata/*.txt", clusterrole.Controller(authz.Aggregate))
}

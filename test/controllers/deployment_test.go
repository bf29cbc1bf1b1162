package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/deployment"
	"proa.dev/control/replicaset"
)

func TestDeployment(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/deployment/testdata/scripts/*.txt", deployment.Controller(), replicaset.Controller())
}

package deployment_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/deployment"
	"proa.dev/control/replicaset"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", deployment.Controller(), replicaset.Controller())
}

package replicaset_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/replicaset"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", replicaset.Controller(), replicaset.Replication())
}

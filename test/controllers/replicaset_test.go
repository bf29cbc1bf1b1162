package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/replicaset"
)

func TestReplicaSet(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/replicaset/testdata/scripts/*.txt", replicaset.Controller(), replicaset.Replication())
}

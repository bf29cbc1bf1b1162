package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/statefulset"
)

func TestStatefulSet(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/statefulset/testdata/scripts/*.txt", statefulset.Controller())
}

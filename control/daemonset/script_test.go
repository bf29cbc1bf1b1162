package daemonset

import (
	"testing"

	"proa.dev/control/controltest"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/scripts/*.txt", Controller()) }

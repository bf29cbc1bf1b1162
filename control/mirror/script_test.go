package mirror_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/mirror"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/scripts/*.txt", mirror.Controller()) }

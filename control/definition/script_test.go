package definition_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/definition"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/*.txt", definition.Controller()) }

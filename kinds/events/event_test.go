package events

import (
	"testing"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind/kindtest"
)

func TestScripts(t *testing.T) { kindtest.Run(t, All(core.All()), "testdata") }

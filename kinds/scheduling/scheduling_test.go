package scheduling

import (
	"testing"

	"proa.dev/kinds/kind/kindtest"
)

func TestScripts(t *testing.T) { kindtest.Run(t, append(All(), Gangs()...), "testdata") }

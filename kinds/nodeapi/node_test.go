package nodeapi

import (
	"testing"

	"proa.dev/kinds/kind/kindtest"
)

func TestScripts(t *testing.T) { kindtest.Run(t, All(), "testdata") }

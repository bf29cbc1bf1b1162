package resource

import (
	"testing"

	"proa.dev/kinds/kind/kindtest"
)

func TestKinds(t *testing.T) { kindtest.Run(t, All(Hooks{}), "testdata") }

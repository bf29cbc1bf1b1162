package rules

import (
	"testing"

	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, apiextensions.All(apiextensions.Hooks{Validate: Validate, Warn: Warn}), "testdata")
}

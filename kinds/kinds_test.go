package kinds

import (
	"testing"

	"proa.dev/kinds/kind/kindtest"
)

func TestMutations(t *testing.T) { kindtest.Mutate(t, All(), "*/testdata/*.txt", 1) }

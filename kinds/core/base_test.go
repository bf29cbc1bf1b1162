package core

import (
	"testing"

	"proa.dev/kinds/kind/kindtest"
)

// TestBaseScripts runs the scripts of the kinds that are not pods.
func TestBaseScripts(t *testing.T) { kindtest.Run(t, All(), "testdata/base") }

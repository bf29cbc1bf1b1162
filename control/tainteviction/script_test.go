package tainteviction_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/tainteviction"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/*.txt", tainteviction.Controller()) }

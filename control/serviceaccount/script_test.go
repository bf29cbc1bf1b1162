package serviceaccount_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/serviceaccount"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/*.txt", serviceaccount.Controller()) }

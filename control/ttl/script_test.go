package ttl_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ttl"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", ttl.Controller())
}

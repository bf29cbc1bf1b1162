package protection_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/protection"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/*.txt", protection.Controllers()...)
}

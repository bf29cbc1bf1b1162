package bootstrap_test

import (
	"testing"

	"proa.dev/control/bootstrap"
	"proa.dev/control/controltest"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", bootstrap.Signer(), bootstrap.Cleaner())
}

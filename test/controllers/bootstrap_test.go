package controllers

import (
	"testing"

	"proa.dev/control/bootstrap"
	"proa.dev/control/controltest"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/bootstrap/testdata/scripts/*.txt", bootstrap.Signer(), bootstrap.Cleaner())
}

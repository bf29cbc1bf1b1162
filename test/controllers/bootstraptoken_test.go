package controllers

import (
	"testing"

	"proa.dev/control/bootstraptoken"
	"proa.dev/control/controltest"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/bootstraptoken/testdata/scripts/*.txt", bootstraptoken.Signer(), bootstraptoken.Cleaner())
}

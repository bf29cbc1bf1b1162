package cronjob_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/cronjob"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", cronjob.Controller())
}

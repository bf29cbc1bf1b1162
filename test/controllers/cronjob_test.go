package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/cronjob"
)

func TestCronJob(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/cronjob/testdata/scripts/*.txt", cronjob.Controller())
}

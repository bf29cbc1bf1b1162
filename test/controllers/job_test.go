package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/job"
)

func TestJob(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/job/testdata/scripts/*.txt", job.Controller())
}

package job_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/job"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", job.Controller())
}

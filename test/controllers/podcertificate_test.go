package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/podcertificate"
)

func TestPodCertificate(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/podcertificate/testdata/*.txt", podcertificate.Controller())
}

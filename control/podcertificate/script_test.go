package podcertificate_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/podcertificate"
)

func TestScripts(t *testing.T) { controltest.Scripts(t, "testdata/*.txt", podcertificate.Controller()) }

package ttl_test

import (
	"slices"
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/cronjob"
	"proa.dev/control/gc"
	"proa.dev/control/job"
	"proa.dev/control/ttl"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", ttl.Controller())
}

// TestTogether runs the loops of Jobs beside each other, and with the collector of garbage that they count on.
func TestTogether(t *testing.T) {
	batch := func() []*kind.Def {
		return slices.DeleteFunc(kinds.All(), func(d *kind.Def) bool { return !slices.Contains([]string{"cronjobs", "jobs", "pods"}, d.Plural) })
	}
	controltest.Scripts(t, "testdata/together/*.txt", ttl.Controller(), job.Controller(), cronjob.Controller(), gc.New(gc.Resources(batch)).Controller())
}

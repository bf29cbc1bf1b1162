package controllers

import (
	"slices"
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/cronjob"
	"proa.dev/control/garbagecollector"
	"proa.dev/control/job"
	"proa.dev/control/ttlafterfinished"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

func TestTTL(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/ttlafterfinished/testdata/scripts/*.txt", ttlafterfinished.Controller())
}

// TestTTLWithJobControllers runs the controllers of Jobs together with the garbage collector that they depend on.
func TestTTLWithJobControllers(t *testing.T) {
	t.Parallel()
	batch := func() []*kind.Def {
		return slices.DeleteFunc(kinds.All(),
			func(d *kind.Def) bool { return !slices.Contains([]string{"cronjobs", "jobs", "pods"}, d.Plural) })
	}
	controltest.Scripts(t, "../../control/ttlafterfinished/testdata/together/*.txt", ttlafterfinished.Controller(), job.Controller(),
		cronjob.Controller(), garbagecollector.New(garbagecollector.Resources(batch)).Controller())
}

package controllers

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

func TestTTL(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/ttl/testdata/scripts/*.txt", ttl.Controller())
}

// TestTTLTogether runs the loops of Jobs beside each other, and with the collector of garbage that they count on.
func TestTTLTogether(t *testing.T) {
	t.Parallel()
	batch := func() []*kind.Def {
		return slices.DeleteFunc(kinds.All(), func(d *kind.Def) bool { return !slices.Contains([]string{"cronjobs", "jobs", "pods"}, d.Plural) })
	}
	controltest.Scripts(t, "../../control/ttl/testdata/together/*.txt", ttl.Controller(), job.Controller(), cronjob.Controller(), gc.New(gc.Resources(batch)).Controller())
}

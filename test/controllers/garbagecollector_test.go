package controllers

import (
	"slices"
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/garbagecollector"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

func TestGC(t *testing.T) {
	t.Parallel()
	few := func() []*kind.Def { // the views of a script are slow
		return slices.DeleteFunc(kinds.All(), func(d *kind.Def) bool {
			return !slices.Contains([]string{"configmaps", "secrets", "clusterroles", "namespaces"}, d.Plural)
		})
	}
	controltest.Scripts(t, "../../control/garbagecollector/testdata/scripts/*.txt",
		append(linkers(), garbagecollector.New(garbagecollector.Resources(few)).Controller())...)
	controltest.Scripts(t, "../../control/garbagecollector/testdata/all/*.txt",
		append(linkers(), garbagecollector.New(garbagecollector.Resources(kinds.All)).Controller())...)
}

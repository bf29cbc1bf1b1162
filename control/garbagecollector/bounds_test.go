package garbagecollector

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// TestManyAbsentOwners has an object that names many owners that do not exist: all objects of their kind are looked through for some of
// them only, since it is for a warning.
func TestManyAbsentOwners(t *testing.T) {
	t.Parallel()
	l := &reconciler{c: &control.Cluster{}, inOtherNamespace: map[types.UID]bool{}}
	for i := range 20_000 {
		l.existsInAnyNamespace(Resource{GroupResource: gr.Pods, Namespaced: true}, types.UID(fmt.Sprint(i)))
	}
	if n := len(l.inOtherNamespace); n != maxWarned {
		t.Errorf("%d owners are looked for, want %d", n, maxWarned)
	}
}

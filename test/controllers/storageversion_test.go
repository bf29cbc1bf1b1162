package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/storageversion"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

func TestStorageVersion(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/storageversion/testdata/scripts/*.txt", storageversion.Controller(findDef))
}

func findDef(on schema.GroupResource) *kind.Def {
	for _, d := range kinds.All() {
		if d.Resource() == on && d.Hub == nil {
			return d
		}
	}
	return nil
}

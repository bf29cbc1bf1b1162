package storageversion_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/storageversion"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", storageversion.Controller(find))
}

func find(on schema.GroupResource) *kind.Def {
	for _, d := range kinds.All() {
		if d.Resource() == on && d.Hub == nil {
			return d
		}
	}
	return nil
}

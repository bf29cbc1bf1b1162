package disruption_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/disruption"
	"proa.dev/control/replicaset"
	"proa.dev/kinds"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", disruption.Controller(mapper), replicaset.Controller())
}

// mapper knows the kinds that are built in.
func mapper(gvk schema.GroupVersionKind) (schema.GroupResource, bool, error) {
	for _, d := range kinds.All() {
		if d.GroupVersionKind == gvk {
			return d.Resource(), d.Sub("scale") != nil, nil
		}
	}
	return schema.GroupResource{}, false, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

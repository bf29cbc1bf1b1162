package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/disruption"
	"proa.dev/control/replicaset"
	"proa.dev/kinds"
)

func TestDisruption(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/disruption/testdata/scripts/*.txt", disruption.Controller(mapper), replicaset.Controller())
	controltest.ScriptsOfServer(t, "../../control/disruption/testdata/custom/*.txt", "disruption-controller", "crd-status-controller")
}

// mapper maps the built-in kinds to resources.
func mapper(gvk schema.GroupVersionKind) (schema.GroupResource, bool, error) {
	for _, d := range kinds.All() {
		if d.GroupVersionKind == gvk {
			return d.Resource(), d.Sub("scale") != nil, nil
		}
	}
	return schema.GroupResource{}, false, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/namespace"
	"proa.dev/kinds/lib/gr"
)

func TestNamespace(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/namespace/testdata/scripts/*.txt", namespace.Controller(namespace.Config{
		Resources: []schema.GroupResource{gr.ConfigMaps, gr.Secrets, gr.ServiceAccounts, gr.Pods, gr.Events},
		Custom:    func() []schema.GroupResource { return nil },
	}))
	controltest.ScriptsOfServer(t, "../../control/namespace/testdata/custom/*.txt", "namespace-controller", "crd-status-controller",
		"crd-finalizer")
}

package namespace_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control/controltest"
	"proa.dev/control/namespace"
	"proa.dev/kinds/gr"
)

func TestScripts(t *testing.T) {
	resources := func() []schema.GroupResource {
		return []schema.GroupResource{gr.ConfigMaps, gr.Secrets, gr.ServiceAccounts, gr.Pods, gr.Events}
	}
	none := func(context.Context, schema.GroupResource) (client.View, error) {
		return nil, errors.New("no other resources")
	}
	controltest.Scripts(t, "testdata/scripts/*.txt", namespace.Controller(resources, none))
}

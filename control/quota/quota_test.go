package quota_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/quota"
	"proa.dev/kinds/gr"
)

func TestScripts(t *testing.T) {
	controltest.Scripts(t, "testdata/scripts/*.txt", quota.Controller(func() []schema.GroupResource {
		return []schema.GroupResource{gr.ConfigMaps, gr.Secrets, gr.Pods, gr.Services, gr.PersistentVolumeClaims, gr.ResourceQuotas, gr.Events, gr.Deployments}
	}))
	// Resources that nobody told the loop of.
	controltest.Scripts(t, "testdata/later/*.txt", quota.Controller(func() []schema.GroupResource { return []schema.GroupResource{gr.Pods} }))
}

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/controltest"
	"proa.dev/control/quota"
	"proa.dev/kinds/lib/gr"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	none := func() []schema.GroupResource { return nil }
	controltest.Scripts(t, "../../control/quota/testdata/scripts/*.txt", quota.Controller([]schema.GroupResource{
		gr.ConfigMaps, gr.Secrets, gr.Pods, gr.Services, gr.PersistentVolumeClaims, gr.ResourceQuotas, gr.Events, gr.Deployments,
	}, none))
	// Resources without a trigger of the controller.
	controltest.Scripts(t, "../../control/quota/testdata/later/*.txt", quota.Controller([]schema.GroupResource{gr.Pods}, none))
	controltest.ScriptsOfServer(t, "../../control/quota/testdata/custom/*.txt", "resourcequota-controller", "crd-status-controller",
		"crd-finalizer")
}
